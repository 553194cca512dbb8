"""What became of events, by their ids: ``/v1/flowmark/status`` (contract, section 4).

What expired or was deleted reads unknown: an event id does not say which run's tombstone to ask.
Whoever then sends it again is answered duplicate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

import orjson

from flowmark_otel import names
from flowmark_otel.backend.store import Store
from flowmark_otel.backend.store.database import Driver, driver_of
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.store.tables import Statements
from flowmark_otel.backend.times import unwrap_time
from flowmark_otel.fold import digest
from flowmark_otel.model import Envelope

State: TypeAlias = tuple[str, str, str | None, str | None]
"""Event id, state, digest in hex, code."""

_EVENT_ID: Final = re.compile(r"(run|op)-([0-9a-f]{32})-([0-9a-f]{16})-(.+)", re.DOTALL)


def states(store: Store, project_id: int, origin: str, event_ids: list[str]) -> list[State]:
    """The state of each id, in the order asked; stored before rejected.

    What another project holds reads unknown, like what nobody holds. Of several rejections of an
    id the first to arrive is named. Raises Unavailable if the store cannot be read.
    """
    asked = {text: key for text in event_ids if (key := _key(text)) is not None}
    scope = (project_id, origin)
    found: dict[str, State] = {}
    with snapshot(store.engine) as connection:
        driver = driver_of(connection)
        _rejected(store.statements, driver, scope, event_ids, found)
        _stored(store.statements, driver, scope, asked, found)
    return [found.get(text, (text, names.STATE_UNKNOWN, None, None)) for text in event_ids]


def _stored(
    statements: Statements,
    driver: Driver,
    scope: tuple[int, str],
    asked: dict[str, tuple[bytes, bytes, str]],
    found: dict[str, State],
) -> None:
    for row in statements.events.run(driver, list(asked.values()), scope):
        trace_id, span_id, part, _, event, sent_at, attributes = row
        sent = unwrap_time(sent_at)
        envelope = Envelope(event, trace_id, span_id, part, sent, orjson.loads(attributes))
        text = envelope.event_id
        found[text] = (text, names.STORED, digest(envelope).hex(), None)


def _rejected(
    statements: Statements,
    driver: Driver,
    scope: tuple[int, str],
    event_ids: Iterable[str],
    found: dict[str, State],
) -> None:
    named = [(text,) for text in dict.fromkeys(event_ids) if text and _is_text(text)]
    for row in statements.rejections.run(driver, named, scope):
        text, kept, code = row
        found.setdefault(text, (text, names.STATE_REJECTED, kept.hex(), code))


def _key(text: str) -> tuple[bytes, bytes, str] | None:
    match = _EVENT_ID.fullmatch(text)
    if match is None or not _is_text(text):
        return None
    kind, trace_id, span_id, rest = match.groups()
    return bytes.fromhex(trace_id), bytes.fromhex(span_id), f"{kind}-{rest}"


def _is_text(text: str) -> bool:
    """Whether a database can hold it: no NUL, no lone surrogate."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
