"""Which rejected events are kept as evidence: enough to explain, never enough to fill a disk.

Once per digest and event id, at most 16 for one event id (contract, section 4). Events for which
no id can be derived share the empty one: of those 10,000 are kept for one project and origin, and
later ones are answered like all others but not kept. So it is with events over a quota: the first
10,000 explain, and a quota that everything kept would bound nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from sqlalchemy import ColumnElement, Connection, func, literal_column, select, text

from flowmark_otel import names
from flowmark_otel.backend.judge import Rejected
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.database import driver_of
from flowmark_otel.backend.store.tables import Statements

Scope: TypeAlias = tuple[int, str]
"""Project and origin."""

MAX_OF_EVENT_ID: Final = 16
MAX_WITHOUT_ID: Final = 10_000
_NAMED: Final = 7  # the first columns of events: id, what its event id is made of, run
_ANY: Final = select(schema.rejections.c.id).where(text("trace_id IS NOT NULL")).limit(1)
MAX_OVER_QUOTA: Final = 10_000
_CODE: Final = 4
_SPAN: Final = slice(11, 14)  # trace id, span id, part


def keep(connection: Connection, statements: Statements, rejected: Sequence[Rejected]) -> None:
    """Write those of the rejected events for which there is room, in order.

    Nobody else may write rejections of these projects and origins until the transaction ends.
    """
    driver = driver_of(connection)
    held: dict[tuple[int, str, str], set[object]] = {}
    for scope in scopes(rejected):
        wanted = {each.event_id for each in rejected if _scope(each) == scope} - {""}
        named = [(event_id,) for event_id in wanted]
        for event_id, digest, _ in statements.rejections.run(driver, named, scope):
            held.setdefault((*scope, event_id), set()).add(digest)
    without_id = scopes([each for each in rejected if not each.event_id])
    columns = schema.rejections.c
    free = {
        scope: MAX_WITHOUT_ID - _counted(connection, scope, columns.event_id == "")
        for scope in without_id
    }
    of_limit = columns.code == literal_column("'limit'")  # as its index has it
    over = {
        scope: MAX_OVER_QUOTA - _counted(connection, scope, of_limit)
        for scope in scopes([each for each in rejected if _over_quota(each)])
    }
    rows = []
    for each in rejected:
        scope = _scope(each)
        digests = held.setdefault((*scope, each.event_id), set())
        if each.digest in digests:
            continue
        if _over_quota(each):
            if over[scope] <= 0:
                continue
            over[scope] -= 1
        room = MAX_OF_EVENT_ID if each.event_id else free[scope]
        if len(digests) < room:
            digests.add(each.digest)
            rows.append(each.row)
    statements.insert_rejections.run(driver, rows)


def link(connection: Connection, statements: Statements, events: Sequence[object]) -> None:
    """Say of rejections whose event id was now accepted, with another payload, in which run.

    ``events`` are the columns of the new rows, row after row. Rejections are few: mostly there is
    none to look for.
    """
    if not events or connection.execute(_ANY).first() is None:
        return
    width = len(schema.events.columns)
    statements.link_rejections.run(
        driver_of(connection),
        [
            (project_id, trace_id, span_id, part, origin, run)
            for _, project_id, origin, trace_id, span_id, part, run in (
                events[at : at + _NAMED] for at in range(0, len(events), width)
            )
        ],
    )


def named(rejected: Sequence[Rejected], scope: Scope) -> list[Sequence[object]]:
    """What the event ids are made of that are refused in a scope, where any could be read."""
    return [each.row[_SPAN] for each in rejected if _scope(each) == scope and each.row[_SPAN][0]]


def scopes(rejected: Sequence[Rejected]) -> list[Scope]:
    """Projects and origins of rejected events, each once and in one order whoever asks."""
    return sorted({_scope(each) for each in rejected})


def _scope(rejected: Rejected) -> Scope:
    return rejected.project_id, rejected.origin


def _over_quota(rejected: Rejected) -> bool:
    return rejected.row[_CODE] == names.LIMIT


def _counted(connection: Connection, scope: Scope, which: ColumnElement[bool]) -> int:
    columns = schema.rejections.c
    counted = connection.execute(
        select(func.count()).where(
            columns.project_id == scope[0], columns.origin == scope[1], which
        )
    )
    return int(counted.scalar_one())
