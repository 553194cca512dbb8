"""``docs/attributes.md`` as the registry has it; run as a program it is written anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.registry import (
    Attribute,
    Conditionally,
    Member,
    Recommended,
    Reference,
    Registry,
    load,
)

PAGE: Final = Path(__file__).parents[1] / "docs" / "attributes.md"

_INTRODUCTION: Final = """\
<!-- Written by tools/attributes_page.py from semconv/; `make docs` writes it anew. -->
# Attributes, events and metrics

What is set on spans, what they become on the wire, and what is counted. All of it is in
development: before version 1.0 a name may change, and the changelog says so.

The same is in `semconv/` of the source tree as a registry in the YAML model of OpenTelemetry's
semantic conventions, for generators, editors and live checks. It defines no entities: evidence
belongs to the resource of its span, as the span has it.

Values are kept exactly as given. Types are strict: `true` is not 1, and `"2"` is no integer. What
breaks a rule is refused by name, and its neighbours are kept; `flowmark-otel check` says so of
captured telemetry. Any other key that starts with `flowmark.` is not carried.
"""


def page(registry: Registry) -> str:
    """The page, in Markdown."""
    return "\n".join(_lines(registry)) + "\n"


def _lines(registry: Registry) -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Attributes"
    for group in registry.attributes:
        yield from ("", f"### {group.display_name}", "", group.brief, "")
        yield from _table(
            ("attribute", "type", "means", "rule", "example"),
            [_definition(each) for each in group.attributes],
        )
    yield from ("", "## Spans")
    for span in registry.spans:
        yield from ("", f"### {span.display_name}", "", span.brief, "")
        yield from _references(span.attributes)
    yield from ("", "## Events", "", "A span becomes a start and an end of each of its records.")
    for event in registry.events:
        yield from ("", f"### `{event.name}`", "", event.brief, "")
        yield from _references(event.attributes)
    yield from ("", "## Metrics", "")
    yield from _table(
        ("metric", "instrument", "unit", "says", "attributes"),
        [
            (
                f"`{each.metric_name}`",
                each.instrument,
                f"`{each.unit}`",
                " ".join(filter(None, (each.brief, each.note))),
                ", ".join(f"`{one.ref}`" for one in each.attributes),
            )
            for each in registry.metrics
        ],
    )


def _definition(attribute: Attribute) -> Sequence[str]:
    kind = attribute.type if isinstance(attribute.type, str) else "string"
    key = f"{attribute.id}.<key>" if kind.startswith("template") else attribute.id
    says = [attribute.note] if attribute.note else []
    if attribute.members:
        says.append(f"One of {'; '.join(map(_member, attribute.members))}.")
    examples = ", ".join(f"`{value}`" for value in attribute.examples)
    return (f"`{key}`", kind, attribute.brief, " ".join(says), examples)


def _member(member: Member) -> str:
    return f"`{member.value}`" + (f": {_inside(member.brief)}" if member.brief else "")


def _inside(sentence: str) -> str:
    """A sentence as a part of another one."""
    return sentence[0].lower() + sentence[1:].rstrip(".")


def _references(references: Sequence[Reference]) -> Iterator[str]:
    return _table(("attribute", "there"), [(f"`{each.ref}`", _level(each)) for each in references])


def _level(reference: Reference) -> str:
    level = reference.requirement_level
    if isinstance(level, Conditionally):
        return f"required {_inside(level.conditionally_required)}"
    if isinstance(level, Recommended):
        return f"recommended {_inside(level.recommended)}"
    return level.replace("_", " ")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    PAGE.write_text(page(load()), encoding="utf-8")
