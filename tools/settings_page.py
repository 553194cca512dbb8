"""``docs/settings.md`` as ``flowmark_otel.config`` has it; run as a program it is written anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from flowmark_otel.config import (
    ClientOptions,
    ProxyOptions,
    ServeOptions,
    Setting,
    Settings,
    declared,
    environment_name,
)

PAGE: Final = Path(__file__).parents[1] / "docs" / "settings.md"

_INTRODUCTION: Final = """\
<!-- Written by tools/settings_page.py from flowmark_otel/config; `make docs` writes it anew. -->
# Settings

Each setting is an argument or an option, and a variable of the environment. Arguments come first,
then variables, then defaults; an empty variable counts as absent. All faults are reported at once,
each by the name of its source. A variable that starts like these and names no setting is a fault,
too. The collector has none of these but a file: [its page](collector.md).
"""


class _Part(NamedTuple):
    """A class of settings: its heading, what is said of it, how its names are written."""

    kind: type[Settings]
    heading: str
    says: str
    option: str = "`{}`"


PARTS: Final = (
    _Part(
        ClientOptions,
        "The client",
        "Arguments of `flowmark_otel.configure`. A setting that cannot be used is reported, and its"
        " default stands in: an application is never stopped by one. Endpoint, key, headers and"
        " certificates always come from one family: with `FLOWMARK_ENDPOINT_FROM_OTEL` all of them"
        " are those of `OTEL_EXPORTER_OTLP_*`.",
    ),
    _Part(
        ServeOptions,
        "The backend",
        "Options of `flowmark-otel serve`, which does not start with a wrong one.",
        "`--{}`",
    ),
    _Part(
        ProxyOptions,
        "The same-origin proxy",
        "Arguments of `AsgiProxy` and `WsgiProxy`, which raise ConfigurationError:"
        " [browsers](browsers.md).",
    ),
)


def page() -> str:
    """The page, in Markdown."""
    return "\n".join((_INTRODUCTION, *_lines())) + "\n"


def _lines() -> Iterator[str]:
    for at, part in enumerate(PARTS):
        yield from (*([""] if at else []), f"## {part.heading}", "", part.says, "")
        yield "| setting | variable | means | default |"
        yield "|---|---|---|---|"
        defaults = {each.name: each for each in fields(part.kind)}
        for name, setting in declared(part.kind).items():
            yield _row(part, name, setting, defaults)


def _row(part: _Part, name: str, setting: Setting, defaults: Mapping[str, Field[Any]]) -> str:
    option = part.option.format(name.replace("_", "-") if "--" in part.option else name)
    variables = [environment_name(part.kind, name), *filter(None, [setting.variable])]
    told = ", ".join(f"`{each}`" for each in variables)
    return f"| {option} | {told} | {setting.help} | {_default(defaults[name].default)} |"


def _default(value: object) -> str:
    """A default as one would write it; nothing where there is none."""
    if value is None or value in ("", (), frozenset()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
