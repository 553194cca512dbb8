"""Tables as CSV (RFC 4180): a column for each field of a view, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Iterator
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from starlette.responses import Response, StreamingResponse

from flowmark_otel.backend.views import jsonable

_END: Final = "\r\n"
# The last four are the wide forms, which a spreadsheet may read as the others.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_answer(name: str, view: type, rows: Iterable[object]) -> Response:
    """Rows of one kind of view, written as they are read; ``name`` is the file's."""
    disposition = f'attachment; filename="{name}.csv"'
    return StreamingResponse(
        lines(view, rows),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": disposition},
    )


def lines(view: type, rows: Iterable[object]) -> Iterator[str]:
    """A line of names, then one of each row."""
    paths = tuple(_paths(view))
    yield _line("_".join(path) for path in paths)
    for row in rows:
        document = jsonable(row)
        yield _line(_cell(_value(document, path)) for path in paths)


def _paths(view: type) -> Iterator[tuple[str, ...]]:
    """The ways to all fields that have no fields of their own, in order."""
    hints = get_type_hints(view)
    for field in dataclasses.fields(view):
        inner = _record(hints[field.name])
        if inner is None:
            yield (field.name,)
        else:
            yield from ((field.name, *path) for path in _paths(inner))


def _record(hint: object) -> type | None:
    """The view that a field holds, if it holds one or none."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = set(get_args(hint)) - {NoneType} if len(get_args(hint)) == 2 else (None,)  # noqa: PLR2004
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


def _value(document: Any, path: tuple[str, ...]) -> object:  # noqa: ANN401 (JSON)
    for name in path:
        if document is None:
            return None
        document = document[name]
    found: object = document
    return found


def _cell(value: object) -> str:
    """A value as a cell: empty for none, JSON for what has parts.

    What came from outside may begin like a formula, which a spreadsheet would run; such a cell gets
    an apostrophe in front.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return f"'{value}" if value.startswith(_FORMULA) else value


def _line(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator=_END).writerow(cells)
    # A lone surrogate can be in no encoding; nothing stored holds one.
    return out.getvalue().encode("utf-8", "replace").decode()
