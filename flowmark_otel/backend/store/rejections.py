"""Which rejected events are kept as evidence: enough to explain, never enough to fill a disk.

Once per digest and event id, at most 16 for one event id (contract, section 4). Events for which
no id can be derived share the empty one: of those 10,000 are kept for one project and origin, and
later ones are answered like all others but not kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from flowmark_otel.backend.judge import Rejected
from flowmark_otel.backend.store import tables

MAX_OF_EVENT_ID: Final = 16
MAX_WITHOUT_ID: Final = 10_000


def keep(connection: sqlite3.Connection, rejected: Sequence[Rejected]) -> None:
    """Write those of the rejected events for which there is room, in order."""
    held: dict[tuple[int, str, str], set[object]] = {}
    for scope in {(each.project_id, each.origin) for each in rejected}:
        wanted = {each.event_id for each in rejected if (each.project_id, each.origin) == scope} - {
            ""
        }
        for event_id, digest, _ in tables.REJECTIONS.run(
            connection, [(event_id,) for event_id in wanted], scope
        ):
            held.setdefault((*scope, str(event_id)), set()).add(digest)
    free = {
        scope: MAX_WITHOUT_ID - _without_id(connection, scope)
        for scope in {(each.project_id, each.origin) for each in rejected if not each.event_id}
    }
    rows = []
    for each in rejected:
        scope = (each.project_id, each.origin)
        digests = held.setdefault((*scope, each.event_id), set())
        if each.digest in digests:
            continue
        room = MAX_OF_EVENT_ID if each.event_id else free[scope]
        if len(digests) < room:
            digests.add(each.digest)
            rows.append(each.row)
    tables.INSERT_REJECTIONS.run(connection, rows)


def _without_id(connection: sqlite3.Connection, scope: tuple[int, str]) -> int:
    counted: tuple[int] = connection.execute(
        "SELECT count(*) FROM rejections WHERE project_id = ? AND origin = ? AND event_id = ''",
        scope,
    ).fetchone()
    return counted[0]
