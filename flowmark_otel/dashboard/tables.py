"""Tables as CSV (RFC 4180): a column for each field of a view, safe to open in a spreadsheet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from starlette.responses import Response, StreamingResponse

from flowmark_otel.backend.views import Page, csv_line, jsonable

_END: Final = "\r\n"


def csv_answer(name: str, view: type, rows: Iterable[object]) -> Response:
    """Rows of one kind of view, written as they are read; ``name`` is the file's."""
    disposition = f'attachment; filename="{name}.csv"'
    return StreamingResponse(
        lines(view, rows),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": disposition},
    )


def every(page: Callable[[str | None], Page[Any]]) -> Iterator[Any]:
    """The items of a whole list, read page by page; each page is a snapshot of its own."""
    cursor: str | None = None
    while True:
        found = page(cursor)
        yield from found.items
        cursor = found.next
        if cursor is None:
            return


def lines(view: type, rows: Iterable[object]) -> Iterator[str]:
    """A line of names, then one of each row."""
    paths = tuple(_paths(view))
    yield csv_line("_".join(path) for path in paths) + _END
    for row in rows:
        document = jsonable(row)
        yield csv_line(_value(document, path) for path in paths) + _END


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
