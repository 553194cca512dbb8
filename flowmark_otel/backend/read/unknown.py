"""What is not known of runs, item by item: gaps, open attempts, references (contract, section 5).

Items of a run are in the order of their ``key``, which does not change when others come or go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, select

from flowmark_otel import names
from flowmark_otel.backend import views
from flowmark_otel.backend.evidence import DbRow, belongs, chunks, conflicts
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.views import EvidenceItem, Time
from flowmark_otel.fold.groups import gaps, place_of
from flowmark_otel.model import event_id

_occurrences = schema.occurrences.c
_events = schema.events.c
_senders = schema.senders.c


class Item(NamedTuple):
    """An item and where it stands among those of its run."""

    key: str
    view: EvidenceItem


class _Event(NamedTuple):
    """An event that an item rests on."""

    event_id: str
    received_at: int
    service: str | None


class _Finding(NamedTuple):
    """An item before its evidence is read; ``events`` are ``events.id``."""

    run: DbRow
    reason: names.EvidenceReason
    operation: str | None
    group_id: str | None
    number: int | None
    last_number: int | None
    operation_id: str
    events: tuple[int, ...]
    says: str
    other: _Event | None = None

    @property
    def key(self) -> str:
        place = (self.operation or "", self.group_id or "", f"{self.number or 0:016d}")
        return "\0".join((*place, self.operation_id))


def items_of(
    connection: Connection, project_id: int, kind: names.Problem, runs: Sequence[DbRow]
) -> dict[int, list[Item]]:
    """The items of one kind of some runs, by ``runs.id``."""
    found = list(_KINDS[kind](connection, project_id, runs))
    events = _read(connection, project_id, (one for each in found for one in each.events))
    items: dict[int, list[Item]] = {run.id: [] for run in runs}
    for each in found:
        known = [events[one] for one in each.events if one in events]
        if each.other is not None:
            known.append(each.other)
        if known:
            items[each.run.id].append(Item(each.key, _view(kind, each, known)))
    for some in items.values():
        some.sort(key=lambda item: item.key)
    return items


def run_ref(run: DbRow) -> views.RunRefView:
    """The run an item is about."""
    return views.RunRefView(run.workflow, run.run_id, run.origin, run.key.hex())


def attempt_name(operation: str | None, group_id: str | None, number: int | None) -> str:
    """An attempt, or an operation, in words."""
    if group_id is None or number is None:
        return operation or "the run"
    return f"{operation}, attempt {number} of group {group_id},"


def _view(kind: names.Problem, found: _Finding, known: Sequence[_Event]) -> EvidenceItem:
    first = min(known, key=lambda event: event.received_at)
    return EvidenceItem(
        kind=kind,
        reason=found.reason,
        run=run_ref(found.run),
        operation=found.operation,
        group_id=found.group_id,
        number=found.number,
        last_number=found.last_number,
        service=first.service,
        event_ids=tuple(event.event_id for event in known),
        first_received_at=Time(first.received_at),
        says=found.says,
    )


def _gaps(connection: Connection, project_id: int, runs: Sequence[DbRow]) -> Iterator[_Finding]:
    known: dict[tuple[int, str, str], dict[int, DbRow]] = {}
    for row in _rows(connection, runs, grouped=True):
        known.setdefault((row.run, row.operation, row.group_id), {})[row.number] = row
    rejected: dict[tuple[int, str, str], dict[int, _Event]] = {}
    for run, records in conflicts(
        connection, project_id, [run.id for run in runs if run.contradicted]
    ).items():
        for record in records:
            place = place_of(record)
            if place is not None:
                numbers = rejected.setdefault((run, *place[:2]), {})
                numbers.setdefault(place[2], _Event(record.event_id, record.received_at, None))
    by_id = {run.id: run for run in runs}
    for group in known.keys() | rejected.keys():
        run, operation, group_id = group
        accepted, refused = known.get(group, {}), rejected.get(group, {})
        for first, last in gaps((*accepted, *refused)):
            row = accepted.get(last + 1)
            yield _Finding(
                by_id[run],
                names.EVIDENCE_HIGHER_NUMBER,
                operation,
                group_id,
                first,
                last,
                "",
                () if row is None else _own(row),
                _says_gap(operation, group_id, first, last),
                refused.get(last + 1) if row is None else None,
            )


def _says_gap(operation: str, group_id: str, first: int, last: int) -> str:
    of_group = f"of group {group_id}"
    if first == last:
        said = f"attempt {first} {of_group} is not known; attempt {last + 1} implies it"
    else:
        said = (
            f"attempts {first} to {last} {of_group} are not known; attempt {last + 1} implies them"
        )
    return f"{operation}: {said}."


def _open(connection: Connection, project_id: int, runs: Sequence[DbRow]) -> Iterator[_Finding]:
    del project_id  # the runs are the project's
    by_id = {run.id: run for run in runs}
    for row in _rows(connection, runs, grouped=False):
        named = attempt_name(row.operation, row.group_id, row.number)
        yield _Finding(
            by_id[row.run],
            names.EVIDENCE_NO_END,
            row.operation,
            row.group_id,
            row.number,
            None,
            row.operation_id,
            _own(row),
            f"{named} started, and no end of it was received.",
        )
    for run in runs:
        if run.status == "open":
            yield _Finding(
                run,
                names.EVIDENCE_NO_END,
                None,
                None,
                None,
                None,
                "",
                (run.start_event,),
                "The run started, and no end of it was received.",
            )


def _unresolved(
    connection: Connection, project_id: int, runs: Sequence[DbRow]
) -> Iterator[_Finding]:
    del connection, project_id
    for run in runs:
        named = f"{run.retry_of_workflow} {run.retry_of_run_id}"
        yield _Finding(
            run,
            names.EVIDENCE_NOT_STORED,
            None,
            None,
            None,
            None,
            "",
            (run.fields_from,),
            f"The run says that it retries {named}, of which nothing is stored.",
        )


_KINDS: Final = {"gap": _gaps, "open": _open, "unresolved": _unresolved}


def _rows(connection: Connection, runs: Sequence[DbRow], *, grouped: bool) -> Iterator[DbRow]:
    """Occurrences: those of groups, or those that are open."""
    which = _occurrences.group_id.is_not(None) if grouped else _occurrences.status == "open"
    for some in chunks(run.id for run in runs):
        yield from connection.execute(
            select(
                _occurrences.run,
                _occurrences.operation,
                _occurrences.operation_id,
                _occurrences.group_id,
                _occurrences.number,
                _occurrences.start_event,
                _occurrences.end_event,
            ).where(_occurrences.run.in_(some), _occurrences.fields.is_not(None), which)
        )


def _own(row: DbRow) -> tuple[int, ...]:
    return tuple(one for one in (row.start_event, row.end_event) if one is not None)


def _read(connection: Connection, project_id: int, ids: Iterable[int]) -> dict[int, _Event]:
    found = {}
    for some in chunks(dict.fromkeys(ids)):
        statement = (
            select(
                _events.id,
                _events.trace_id,
                _events.span_id,
                _events.part,
                _events.received_at,
                _senders.service_name,
            )
            .outerjoin(schema.senders, _senders.id == _events.sender)
            .where(_events.id.in_(some), belongs(_events.project_id, project_id))
        )
        for row in connection.execute(statement):
            named = event_id(row.trace_id, row.span_id, row.part)
            found[row.id] = _Event(named, row.received_at, row.service_name or None)
    return found
