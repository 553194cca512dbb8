"""The tables of ``docs/signals.md`` as the code has them; ``python -m`` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flowmark_otel.signals import ATTEMPTS, OTHERS, Convention

PAGE: Final = Path(__file__).parents[2] / "docs" / "signals.md"
_TABLE: Final = "<!-- {name} -->\n{lines}\n<!-- end of {name} -->"


def tables() -> dict[str, list[str]]:
    """The lines of each table, by the name that stands before it."""
    return {"attempts": list(_attempts()), "others": list(_others())}


def written(page: str) -> str:
    """The page with its tables as the code has them."""
    for name, lines in tables().items():
        table = _TABLE.format(name=name, lines="\n".join(lines))
        page = re.sub(
            rf"<!-- {name} -->.*<!-- end of {name} -->",
            table.replace("\\", r"\\"),
            page,
            flags=re.DOTALL,
        )
    return page


def _attempts() -> Iterator[str]:
    yield "| name | written by | group | number | operation | outcome | in `safe` |"
    yield "|---|---|---|---|---|---|---|"
    for row in ATTEMPTS:
        group = " + ".join(_keys(keys) for keys in row.group)
        operation = _keys(row.operation) if row.operation else "the span's name"
        outcome = row.outcome.says if row.outcome else ""
        safe = f"no: {row.doubt}" if row.doubt else "yes"
        yield (
            f"| `{row.name}` | {row.source} | {group} | {_number(row)} | {operation} |"
            f" {outcome} | {safe} |"
        )


def _others() -> Iterator[str]:
    yield "| name in `check` | written by | key | number | why it is no attempt |"
    yield "|---|---|---|---|---|"
    for row in OTHERS:
        yield f"| {row.name} | {row.source} | {_keys(row.marks)} | {_number(row)} | {row.never} |"


def _keys(keys: tuple[str, ...]) -> str:
    return ", else ".join(f"`{key}`" for key in keys)


def _number(row: Convention) -> str:
    if not row.number:
        return "none"
    if row.total:
        return f"none: {_keys(row.number)} counts all resends of the span"
    said = [f"{_keys(row.number)}, counted from {row.base}"]
    if row.absent is not None:
        said.append(f"absent is try {row.absent}")
    if row.zero_unknown:
        said.append("0 is not known")
    if row.unnumbered:
        said.append(f"none where {_keys(row.unnumbered)} is true")
    if row.where is not None:
        key, values = row.where
        where = f"`{key}`" if key else "the span's name"
        said.append(f"where {where} is {' or '.join(f'`{value}`' for value in values)}")
    return "; ".join(said)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
