"""Every way to read one project, as a table: what a test of isolation goes through.

``INNER`` holds the functions below the reader, given what no caller would give them: the ids and
rows of both projects. Each has a project condition of its own and must not rely on its callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, get_args

from sqlalchemy import Connection, select

from flowmark_otel import names
from flowmark_otel.backend import audit, evidence, status, tries
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import (
    EvidenceFilters,
    Reader,
    RunFilters,
    events,
    filters,
    finding,
    intake,
    news,
    operations,
    refused,
    runs,
    unknown,
)
from flowmark_otel.backend.read.elsewhere import elsewhere
from flowmark_otel.backend.store import Store, quotas, schema
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.summary import folding, live, rollups, search
from flowmark_otel.backend.summary.spans import pieces
from flowmark_otel.errors import FlowmarkError
from flowmark_otel.model import event_id, run_key
from tests.support.two_projects import END, NOW, OURS, THEIR_WORKFLOW, THEIRS, Hands

_ALL: Final = 500


class Scene(NamedTuple):
    """A store that is open, and the clock it goes by."""

    store: Store
    clock: Hands

    @property
    def reader(self) -> Reader:
        """Its reader, to which all that has no end is open."""
        return Reader(self.store, self.clock, open_after_ns=0)


Way = Callable[[Scene], object]


def answered(way: Way, scene: Scene) -> object:
    """What a way gives, or how it is refused."""
    try:
        return way(scene)
    except FlowmarkError as error:
        return type(error).__name__, str(error)


def key_of(project: int, run_id: str) -> str:
    """The opaque key of a run of workflow ``crm.sync``."""
    return run_key(project, names.ORIGIN_SERVER, "crm.sync", run_id).hex()


def _ids() -> list[str]:
    parts = ("run-start", "run-end", "op-start", "op-end")
    spans = [(1).to_bytes(16, "big") + one.to_bytes(8, "big") for one in range(1, 25)]
    return [event_id(one[:16], one[16:], part) for one in spans for part in parts]


def _lists() -> Iterator[tuple[str, Way]]:
    given: list[dict[str, Any]] = [
        {},
        *({"workflow": one} for one in ("crm.sync", THEIR_WORKFLOW)),
        *({"status": one} for one in get_args(names.RunStatus)),
        *({"verdict": one} for one in get_args(names.Verdict)),
        *({"problem": one} for one in get_args(names.Problem)),
        *({"origin": one} for one in get_args(names.Origin)),
        *({"error_code": one} for one in ("E_ours", "E_theirs")),
        *({"run_id": one} for one in ("r1", "gone", "r7")),
        *({"q": one} for one in ("crm", "theirs", "batch 42", "nothing")),
        {"operation": "load"},
        {"group_id": "batch-42"},
        {"group_id": "batch-42", "operation": "push-to-crm"},
        {"trace_id": (1).to_bytes(16, "big")},
        {"has_retries": True},
        {"has_retries": False},
        {"min_attempts": 2},
        {"min_attempts": 99},
        {"since": NOW, "until": END},
        {"since": NOW, "verdict": "open", "workflow": "crm.sync"},
        {"q": "crm", "status": "completed"},
    ]
    for one in given:
        yield f"runs {one}", partial(_runs_of, RunFilters(**one))
    for kind in (None, *get_args(names.Problem)):
        for further in _FURTHER:
            wanted = EvidenceFilters(kind=kind, **further)
            yield f"evidence {kind} {further}", partial(_evidence_of, wanted)


_FURTHER: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"workflow": "crm.sync"},
    {"service": "crm-sync"},
    {"since": NOW},
)


def _runs_of(wanted: RunFilters, scene: Scene) -> object:
    return scene.reader.runs(OURS, wanted, _ALL)


def _evidence_of(wanted: EvidenceFilters, scene: Scene) -> object:
    return scene.reader.evidence(OURS, wanted, _ALL)


def _pages(scene: Scene) -> object:
    """The list in pages of one: its cursors as well."""
    found, at = [], None
    while True:
        page = scene.reader.runs(OURS, None, 1, at)
        found.append(page)
        at = page.next
        if at is None:
            return found


def _of_runs() -> Iterator[tuple[str, Way]]:
    for run_id in ("r0", "r1", "r2", "r3", "gone"):
        for project in (OURS, THEIRS):
            key = key_of(project, run_id)
            for name in ("run", "operations", "attempts", "events", "run_statistics"):
                yield f"{name} {project} {run_id}", partial(_of_run, name, key)


def _of_run(name: str, key: str, scene: Scene) -> object:
    return getattr(scene.reader, name)(OURS, key)


READS: Final[dict[str, Way]] = {
    **dict(_lists()),
    **dict(_of_runs()),
    "pages": _pages,
    "operations": lambda scene: scene.reader.operation_statistics(OURS),
    "operations of a workflow": lambda scene: scene.reader.operation_statistics(
        OURS, workflow="crm.sync"
    ),
    "operations of a time": lambda scene: scene.reader.operation_statistics(
        OURS, since=NOW - 1, until=END
    ),
    "overview": lambda scene: scene.reader.overview(OURS, NOW - 10**15, END),
    "latest arrival": lambda scene: scene.reader.latest_arrival(OURS),
    "ingest": lambda scene: scene.reader.ingest(OURS),
    "trace": lambda scene: scene.reader.trace(OURS, (1).to_bytes(16, "big")),
    "status": lambda scene: status.states(scene.store, OURS, names.ORIGIN_SERVER, _ids()),
    "status of pages": lambda scene: status.states(scene.store, OURS, names.ORIGIN_BROWSER, _ids()),
}


def on(ask: Callable[[Connection], object]) -> Way:
    """A way that asks on a snapshot."""

    def way(scene: Scene) -> object:
        with snapshot(scene.store.engine) as connection:
            return ask(connection)

    return way


def _rows(connection: Connection) -> list[Any]:
    """The runs of both projects, as lists give them to what shows them."""
    marked = filters.contradicted().label("contradicted")
    return list(connection.execute(select(schema.runs, marked).order_by(schema.runs.c.id)))


def run_ids(connection: Connection) -> list[int]:
    """The ids of the runs of both projects."""
    return [row.id for row in _rows(connection)]


def _events(connection: Connection) -> list[int]:
    return list(connection.execute(select(schema.events.c.id)).scalars())


def _each(ask: Callable[[Connection, Any], object]) -> Way:
    """A question about one run, asked of each of both projects."""
    return on(lambda connection: [ask(connection, row) for row in _rows(connection)])


def _accepted(connection: Connection, row: Any) -> list[Any]:
    found = evidence.run_events(connection, row.project_id, [row.id])[row.id]
    return [*found, *evidence.events_by_id(connection, row.project_id, _events(connection))]


def _refused(connection: Connection) -> object:
    ids = list(connection.execute(select(schema.rejections.c.id)).scalars())
    return [
        list(
            refused.items_of(
                connection, OURS, ids, conflicts=conflicts, workflow=None, service=None
            )
        )
        for conflicts in (True, False)
    ]


_GROUPS: Final = [("push-to-crm", "batch-42"), ("push-to-crm", "batch-43")]

INNER: Final[dict[str, Way]] = {
    "run events": on(lambda c: evidence.run_events(c, OURS, run_ids(c))),
    "events by id": on(lambda c: list(evidence.events_by_id(c, OURS, _events(c)))),
    "observed": _each(lambda c, row: evidence.observed_events(c, OURS, row.id)),
    "conflicts": on(lambda c: evidence.conflicts(c, OURS, run_ids(c))),
    "conflicts with": _each(
        lambda c, row: evidence.conflicts_with(c, OURS, row.id, row.origin, _accepted(c, row))
    ),
    "words": on(lambda c: search.among(c, OURS, [["crm"]], run_ids(c))),
    "tries": on(lambda c: tries.run_tries(c, OURS, run_ids(c))),
    "summaries": on(lambda c: folding.summarise(c, OURS, _rows(c))),
    "views": on(lambda c: runs.views_of(c, OURS, _rows(c))),
    "unknown": on(
        lambda c: [unknown.items_of(c, OURS, kind, _rows(c)) for kind in ("gap", "open")]
    ),
    "refused": on(_refused),
    "named events": _each(lambda c, row: events.named_events(c, OURS, row, _ids())),
    "mark": _each(lambda c, row: news.mark(c, OURS, row)),
    "newer events": _each(lambda c, row: news.newer_events(c, OURS, row, (0, 0))),
    "newer runs": on(lambda c: news.newer_runs(c, OURS, RunFilters(), 0)),
    "newer items": on(lambda c: news.newer_items(c, OURS, EvidenceFilters(), (0, END, 0))),
    "events of runs": on(lambda c: intake.events_of(c, OURS, run_ids(c))),
    "received": on(lambda c: intake.received(c, OURS)),
    "events": _each(lambda c, row: events.event_page(c, OURS, row, _ALL, None)),
    "elsewhere": _each(lambda c, row: elsewhere(c, OURS, row, _GROUPS)),
    "occurrence page": _each(lambda c, row: operations.occurrence_page(c, OURS, row, _ALL, None)),
    "rejected groups": _each(
        lambda c, row: operations._rejected_groups(c, OURS, row, None, 0, _ALL)
    ),
    "chosen rows": on(
        lambda c: finding._Finder(c, OURS, RunFilters(status="completed"))._stale(run_ids(c))
    ),
    "live": on(lambda c: live.live(c, OURS, 0, END)),
    "kept at the edges": on(lambda c: list(live.rest(c, OURS, 0, END))),
    "kept of a workflow": on(lambda c: list(live.rest(c, OURS, 0, END, "crm.sync"))),
    "sums": on(lambda c: rollups.sums(c, OURS, pieces(0, END - END % 86_400_000_000_000))),
    "audit": on(lambda c: audit.entries(c, OURS)),
    "all of the audit": on(audit.entries),
    "quotas": on(quotas.usage),
    "keys": lambda scene: [(one.project, one.kind) for one in Keys(scene.store).list()],
}
