"""Two projects of one store that use the same names and ids for everything (fault row 22).

What the second says in values of its own contains ``theirs``: it must never be read by the first.
Ids are given to the first project first, so that it has the same ones where it is alone; the other
has arrivals before, among and after its.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from sqlalchemy import Connection, update

from flowmark_otel import names
from flowmark_otel.backend import audit
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import Arrival, Batch, Store, open_store, quotas, schema
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.clock import SystemClock
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Refused, Sender, Span, SpanEvent, run_key
from tests.support.history import SECOND, ZERO, attempt, operation_of, run_of, span

OURS: Final = 1
THEIRS: Final = 2
MARK: Final = "theirs"
THEIR_WORKFLOW: Final = "stock.import"
LATE: Final = "r9"
"""A run that a run of theirs says it retries, by the key it would have in our project."""

DAY: Final = 86_400 * SECOND
NOW: Final = ZERO + 10 * DAY
END: Final = NOW + 1000 * DAY
"""After everything."""


class Hands(SystemClock):
    """A clock whose hands are moved by hand; ``now`` in epoch nanoseconds."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def now_ns(self) -> int:
        """Epoch nanoseconds."""
        return self.now


def make(url: str, *, alone: bool, folded: bool) -> None:
    """A store with both projects, or ``alone`` with ours and an empty other one."""
    clock = Hands()
    store = open_store(url, clock=clock)
    keys = Keys(store)
    assert [keys.ensure_project(name) for name in ("ours", MARK)] == [OURS, THEIRS]
    _record(store, clock, OURS, "ours")
    if not alone:
        _record(store, clock, THEIRS, MARK)
    if folded:
        fold_all(store)
    if not alone:
        store.write(_collide).result(30)
    store.close()


def folds(some: Iterable[Span]) -> list[Envelope | Refused]:
    """What spans fold into."""
    return [event for one in some for event in fold_span(one)]


def say(
    store: Store,
    project: int,
    some: Iterable[Envelope | Refused],
    *,
    origin: str = names.ORIGIN_SERVER,
    service: str = "crm-sync",
) -> object:
    """Send some events; the verdict."""
    sender = Sender("tests/1", service, "1.2.3", None)
    arrivals = [Arrival(item, sender, event) for item, event in enumerate(some)]
    return store.submit(Batch(project, origin, arrivals)).result(30)


def started(number: int, group_id: str = "batch-43", run_id: str = "r1") -> Envelope:
    """The start of an attempt that never ends."""
    found = fold_span(span(number, attempt(group_id, 1, run_id=run_id)))[0]
    assert isinstance(found, Envelope)
    return found


def _record(store: Store, clock: Hands, project: int, mark: str) -> None:
    """The story of one project, from both origins, with what is refused in it."""
    theirs = mark == MARK
    clock.now = NOW - DAY if theirs else NOW
    say(store, project, folds(spans_of(mark)))
    if theirs:
        # What would answer the open questions of the other project, were it the same one.
        say(store, project, folds([span(5, attempt("batch-42", 9))]))
        say(store, project, folds([span(20, run_of("gone")), span(21, run_of("p0"))]))
        clock.now = NOW + DAY
        say(store, project, folds([span(22, run_of("r7")), span(23, attempt("batch-42", 1))]))
        say(store, project, folds([span(24, run_of("r8", workflow=THEIR_WORKFLOW))]), service=MARK)
    clock.now += SECOND
    # The place of span 4, claimed by another; span 3 once more, saying something else.
    say(store, project, folds([span(5, attempt("batch-42", 3))]))
    again = attempt("batch-42", 1, error__code=f"E_{mark}_again")
    say(store, project, folds([span(3, again, failed=True)]))
    say(store, project, [started(10)])
    half = {**operation_of(), names.ATTEMPT_GROUP_ID: mark}
    say(store, project, folds([span(11, half)]))
    say(
        store, project, folds([Span(bytes(16), bytes(8), "x", 1, 2, failed=False, attributes=half)])
    )
    say(store, project, folds(spans_of(mark)), origin=names.ORIGIN_BROWSER)
    for most in (0, 500 * project):
        change = partial(quotas.change, project_id=project, quotas={"events": most})
        store.write(change)
        if not most:
            say(store, project, [started(31, "batch-44")])
    store.write(
        lambda connection: audit.begin(
            connection, project_id=project, at=1, actor=mark, action="delete_run", subject=mark
        )
    ).result()


def spans_of(mark: str) -> Iterator[Span]:
    """A run with a failure, a gap, an open end and references, and runs around it."""
    yield span(1, run_of("r0", outcome=mark, parent_run__id="p0"))
    given = run_of("r1", outcome=mark, retry_of=("crm.sync", "r0"), parent_run__id="r0")
    yield span(2, given, start=ZERO + SECOND)
    tried = span(3, attempt("batch-42", 1, error__code=f"E_{mark}", limit=4), failed=True)
    seen = {
        names.OBSERVED_NUMBER: 1,
        names.OBSERVED_OUTCOME: "failed",
        names.OBSERVED_SYSTEM: mark,
    }
    yield tried._replace(events=(SpanEvent(names.ATTEMPT_OBSERVED, ZERO + 5, seen),))
    yield span(4, attempt("batch-42", 3))
    yield span(6, operation_of(operation="load"))
    yield span(7, attempt("batch-42", 1, run_id="r3"))
    yield span(8, run_of("r2", outcome=mark, retry_of=("crm.sync", "gone")))


def _collide(connection: Connection) -> None:
    """Let a run of theirs refer to a key of ours, as if the hashes of two names were the same."""
    runs = schema.runs.c
    changed = connection.execute(
        update(schema.runs)
        .where(runs.project_id == THEIRS, runs.run_id == "r7")
        .values(
            retry_of_key=run_key(OURS, names.ORIGIN_SERVER, "crm.sync", LATE),
            stale=0,
        )
    )
    assert changed.rowcount == 1
