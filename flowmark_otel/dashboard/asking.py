"""What an address asks for, read as the API reads it: unknown names are refused, not ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from flowmark_otel.backend.api.parameters import Parameter, read_query
from flowmark_otel.dashboard import ranges
from flowmark_otel.dashboard.ranges import Range


@dataclass(frozen=True, slots=True)
class Asked:
    """What was read of an address.

    ``texts``: what it says, blank fields of a form left out. ``values``: the same as values,
    without the time range, the cursor and what only the page knows.
    """

    texts: Mapping[str, str]
    values: Mapping[str, Any]
    range: Range
    cursor: str | None

    @property
    def filters(self) -> dict[str, str]:
        """The texts without the place in the list: what another page of it is asked with."""
        return {name: text for name, text in self.texts.items() if name != _CURSOR}


_CURSOR: Final = "cursor"


def read(
    request: Request,
    parameters: Sequence[Parameter],
    now: int,
    *,
    default: str | None = None,
    further: Sequence[str] = (),
) -> Asked:
    """Read an address; ``parameters`` are those the API takes, ``further`` what the page adds.

    ``default``: the range where none is named. Raises BadParameter.
    """
    given = [(name, text) for name, text in request.query_params.multi_items() if text.strip()]
    own = {*further, *ranges.NAMES}
    known = [one for one in parameters if one.name not in own]
    values = read_query(known, [(name, text) for name, text in given if name not in own])
    cursor = values.pop(_CURSOR, None)
    texts = dict(given)
    range_ = ranges.read(texts, now, default)
    if cursor is not None:
        range_, cursor = ranges.pinned(range_, str(cursor))
    return Asked(texts, values, range_, None if cursor is None else str(cursor))
