"""Contract, section 5, on both stores: overview, evidence, ingest; lists beside a writer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from flowmark_otel import names
from flowmark_otel.backend.holding import Limits
from flowmark_otel.backend.read import BadParameter, EvidenceFilters, Reader, RunFilters, finding
from flowmark_otel.backend.store import open_store
from flowmark_otel.backend.summary import live
from flowmark_otel.backend.summary.spans import DAY, MINUTE, SECOND
from flowmark_otel.backend.summary.worker import Summariser, fold_all
from flowmark_otel.backend.summary.writing import start_over
from flowmark_otel.backend.views import EvidenceItem
from flowmark_otel.errors import Unavailable
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Refused
from flowmark_otel.testing import FakeClock
from tests.support.history import ZERO, Ingested, attempt, operation_of, run_of, span

NOW = ZERO + DAY


@pytest.fixture
def clock() -> FakeClock:
    """The backend's clock, a day after the spans."""
    return FakeClock(NOW)


@pytest.fixture
def store(store_url: str, clock: FakeClock) -> Iterator[Ingested]:
    """An empty store of each kind."""
    opened = open_store(store_url, clock=clock)
    try:
        found = Ingested(opened)
        found.reader = Reader(opened, clock)
        yield found
    finally:
        opened.close()


def kinds(store: Ingested, **filters: object) -> list[EvidenceItem]:
    """The items of an evidence list, read in pages of two."""
    items: list[EvidenceItem] = []
    cursor = None
    while True:
        wanted = EvidenceFilters(**filters)  # type: ignore[arg-type]
        page = store.reader.evidence(1, wanted, 2, cursor)
        items += page.items
        cursor = page.next
        if cursor is None:
            return items


# -- overview ------------------------------------------------------------------------------------


def test_an_overview_has_both_rates_and_their_denominators(
    store: Ingested, clock: FakeClock
) -> None:
    """E4, A16: attempts and operations each with its own; extra attempts by bucket."""
    store.send(
        span(1, attempt("g", 1, error__code="E1"), failed=True),
        span(2, attempt("g", 2)),
        span(3, operation_of(operation="load")),
        span(4, run_of()),
    )
    clock.advance(2 * DAY / SECOND)
    store.send(span(5, attempt("h", 3, run_id="r2"), failed=True))
    for summarised in (False, True):
        if summarised:
            fold_all(store.store)
        found = store.reader.overview(1, NOW - DAY, clock.now_ns() + 1, 10)
        assert (found.runs, found.statuses.completed, found.statuses.unknown) == (2, 1, 1)
        assert (found.problems.gap, found.problems.open) == (1, 0)
        figures = found.figures
        assert (figures.attempts, figures.groups, figures.operations) == (3, 2, 3)
        assert (figures.attempt_errors.numerator, figures.attempt_errors.denominator) == (2, 3)
        assert (figures.operation_errors.numerator, figures.operation_errors.denominator) == (1, 3)
        assert (figures.verdicts.after_retry, figures.verdicts.first_try) == (1, 1)
        extra = figures.extra_attempts
        assert (extra.numerator, extra.denominator, extra.at_least) == (2, 3, True)
        by_bucket = [bucket.figures.extra_attempts.numerator for bucket in found.buckets]
        assert (sum(by_bucket), by_bucket[-1]) == (2, 1)
        push, load = found.operations
        assert (push.operation, load.operation) == ("push-to-crm", "load")
        assert push.top_error is not None
        assert (push.top_error.code, push.top_error.count) == ("E1", 1)
        assert (push.attempts_p50, push.attempts_p95, push.attempts_max) == (1, 2, 2)
        assert load.attempts_max is None
        assert [one.numerator for one in push.extra_attempts_by_bucket] == by_bucket
        assert found.not_included == 0


@pytest.mark.parametrize(
    ("since", "until", "buckets", "says"),
    [(5, 5, 30, "since: "), (6, 5, 30, "since: "), (0, 1, 0, "buckets: "), (0, 1, 201, "buckets")],
)
def test_a_time_that_is_none(
    store: Ingested, since: int, until: int, buckets: int, says: str
) -> None:
    """Contract, section 5: a question that cannot be answered names the parameter and the mend."""
    with pytest.raises(BadParameter, match=says):
        store.reader.overview(1, since, until, buckets)


def test_too_many_changed_runs_are_said(store: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract, section 5: figures are never silently incomplete: runs not in them are counted."""
    for number in range(5):
        store.send(span(number + 1, attempt("g", 1, run_id=f"r{number}")))
    monkeypatch.setattr(live, "MOST_RUNS", 3)
    found = store.reader.overview(1, 0, NOW + 1)
    assert (found.figures.attempts, found.not_included) == (3, 2)
    (row,) = store.reader.operation_statistics(1).items
    assert (row.attempts, row.not_included) == (3, 2)
    monkeypatch.setattr(live, "MOST_OCCURRENCES", 1)
    assert store.reader.overview(1, 0, NOW + 1).not_included == 4
    fold_all(store.store)
    found = store.reader.overview(1, 0, NOW + 1)
    assert (found.figures.attempts, found.not_included) == (5, 0)


def test_a_predecessor_that_arrives_resolves_at_once(store: Ingested) -> None:
    """A17: a reference counts as unresolved until its run is stored, summarised or not."""
    store.send(span(1, run_of("r1", retry_of=("crm.sync", "r0"))))
    fold_all(store.store)
    assert store.reader.overview(1, 0, NOW + 1).problems.unresolved == 1
    assert [item.reason for item in kinds(store, kind="unresolved")] == ["run_not_stored"]
    store.send(span(2, run_of("r0")))
    for _ in range(2):
        assert store.reader.overview(1, 0, NOW + 1).problems.unresolved == 0
        assert kinds(store, kind="unresolved") == []
        assert store.reader.runs(1, RunFilters(problem="unresolved")).items == ()
        fold_all(store.store)


# -- evidence ------------------------------------------------------------------------------------


def test_each_kind_says_what_is_missing_and_what_implies_it(
    store: Ingested, clock: FakeClock
) -> None:
    """Contract, section 5: one sentence, the events it rests on, and where it belongs."""
    store.send(span(1, attempt("g", 3)), span(2, run_of(retry_of=("x", "y"))))
    store.put(fold_span(span(3, attempt("o", 1, run_id="r2")))[:1])
    store.send(span(4, attempt("g", 3)))
    store.put([Refused(names.INVALID, "flowmark.run.id: is blank", "")])
    assert [(item.kind, item.reason) for item in kinds(store)] == [
        ("gap", "higher_number_known"),
        ("unresolved", "run_not_stored"),
        ("conflict", "place"),
        ("conflict", "place"),
        ("rejected", "invalid"),
        ("rejected", "conflict"),
        ("rejected", "conflict"),
    ]
    (gap,) = kinds(store, kind="gap")
    assert gap.says == (
        "push-to-crm: attempts 1 to 2 of group g are not known; attempt 3 implies them."
    )
    assert (gap.number, gap.last_number, gap.service) == (1, 2, "crm-sync")
    assert gap.run is not None
    assert gap.run.run_id == "r1"
    assert len(gap.event_ids) == 2
    refused = kinds(store, kind="rejected")[0]
    assert (refused.run, refused.says) == (
        None,
        "An event was refused as invalid: flowmark.run.id: is blank.",
    )
    assert kinds(store, service="other") == []
    assert len(kinds(store, workflow="crm.sync")) == 6
    clock.advance(15 * MINUTE / SECOND)
    (still,) = kinds(store, kind="open")
    assert (
        still.says == "push-to-crm, attempt 1 of group o, started, and no end of it was received."
    )


def test_what_is_open_is_listed_after_a_while(store: Ingested, clock: FakeClock) -> None:
    """A11: an end may be on its way; the time to wait for it is a setting."""
    store.put(fold_span(span(1, attempt("o", 1)))[:1])
    clock.advance(MINUTE / SECOND)
    store.put(fold_span(span(2, attempt("o", 2)))[:1])
    found = Reader(store.store, clock, open_after_ns=MINUTE).evidence(1)
    assert [item.number for item in found.items] == [1]
    assert store.reader.runs(1, RunFilters(problem="open")).items


@pytest.mark.parametrize("folds", [False, True])
def test_a_conflict_whose_event_id_is_accepted_later_marks_that_run(
    store: Ingested, *, folds: bool
) -> None:
    """Fault row 12: one event id with two digests marks both runs, whichever came first."""
    store.send(span(1, attempt("g", 1, run_id="r1")))
    store.send(span(2, attempt("g", 1, run_id="r1")))  # claims a place: rejected
    if folds:
        fold_all(store.store)
    store.send(span(2, attempt("g", 1, run_id="r2")))  # its event ids, elsewhere: accepted
    if folds:
        fold_all(store.store)
    for filters in (RunFilters(verdict="undetermined"), RunFilters(problem="conflict")):
        assert [run.run_id for run in store.reader.runs(1, filters).items] == ["r2", "r1"]
    key = store.reader.runs(1, RunFilters(run_id="r2")).items[0].key
    (group,) = store.reader.attempts(1, key).items
    assert group.verdict == "undetermined"


def test_what_is_over_a_quota_is_a_problem_of_its_run(store_url: str, clock: FakeClock) -> None:
    """Contract, section 5: a refusal changes what a summarised run reads as, whatever its code."""
    opened = open_store(store_url, clock=clock, limits=Limits(events=2))
    store = Ingested(opened)
    store.send(span(1, attempt("g", 1)))
    fold_all(opened)
    assert store.send(span(2, attempt("g", 2))).rejections[0].code == names.LIMIT
    for _ in range(2):
        assert len(store.reader.runs(1, RunFilters(problem="rejected")).items) == 1
        assert store.reader.overview(1, 0, NOW + 1).problems.rejected == 1
        fold_all(opened)
    assert [item.reason for item in kinds(store, kind="rejected")] == ["limit", "limit"]
    opened.close()


# -- ingest --------------------------------------------------------------------------------------


def test_what_became_of_events_is_counted_for_good(store_url: str, clock: FakeClock) -> None:
    """Contract, section 5: stored, duplicate and rejected by reason outlive a restart."""
    for _ in range(2):
        opened = open_store(store_url, clock=clock)
        store = Ingested(opened)
        store.send(span(1, attempt("g", 1)), span(2, attempt("g", 1)))
        store.put([Refused(names.INVALID, "flowmark.run.id: is blank", "")])
        store.send(span(1, attempt("g", 1)), origin="browser")
        fold_all(opened)
        found = Reader(opened, clock).ingest(1)
        opened.close()
    counted = {(one.origin, one.state, one.reason): one.count for one in found.events}
    assert counted == {
        ("server", "stored", None): 2,
        ("server", "duplicate", None): 2,
        ("server", "rejected", "conflict"): 4,
        ("server", "rejected", "invalid"): 2,
        ("browser", "stored", None): 2,
        ("browser", "duplicate", None): 2,
    }
    (sender,) = found.senders
    assert (sender.service_name, sender.service_version) == ("crm-sync", "1.2.3")
    assert (sender.events, sender.behind_p50_ns) == (4, DAY - SECOND)
    assert sender.behind_p95_ns == DAY
    assert (found.oldest_evidence, found.read_at) == (NOW, NOW)
    assert found.store_bytes > 0
    assert found.bytes_per_attempt == found.store_bytes // 2


def test_another_project_is_not_counted(store: Ingested) -> None:
    """I5: counts, senders and times are of the project that asks."""
    store.send(span(1, attempt("g", 1)), project=2)
    found = store.reader.ingest(1)
    assert (found.events, found.senders, found.oldest_evidence) == ((), (), None)
    assert store.reader.overview(1, 0, NOW + 1).runs == 0


# -- lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", [RunFilters(), RunFilters(verdict="first_try", q="crm")])
def test_pages_neither_skip_nor_repeat_beside_a_writer(
    store: Ingested, filters: RunFilters
) -> None:
    """D5: what was there at the first page is read once, while runs arrive and are summarised."""
    for number in range(40):
        store.send(span(number + 1, attempt("g", 1, run_id=f"r{number}")))
    summariser = Summariser(store.store)
    stopping = threading.Event()

    def write() -> None:
        number = 1000
        while not stopping.is_set():
            number += 1
            store.send(span(number, attempt("g", number % 3 + 2, run_id=f"r{number % 60}")))

    writer = threading.Thread(target=write)
    page = store.reader.runs(1, filters, 3)
    writer.start()
    summariser.start()
    try:
        seen = [run.run_id for run in page.items]
        while page.next is not None:
            page = store.reader.runs(1, filters, 3, page.next)
            seen += [run.run_id for run in page.items]
    finally:
        stopping.set()
        writer.join()
        summariser.stop()
    assert len(seen) == len(set(seen))
    if filters == RunFilters():
        assert [name for name in seen if int(name[1:]) < 40] == [f"r{n}" for n in range(39, -1, -1)]


def test_a_list_that_few_runs_pass_is_given_piece_by_piece(
    store: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: a page looks at so many runs and no more; short pages together are the whole list."""
    for number in range(30):
        store.send(span(number + 1, attempt("g", 1, run_id=f"r{number}"), failed=number == 3))
    monkeypatch.setattr(finding, "MOST_LOOKED_AT", 10)
    monkeypatch.setattr(finding, "MOST_NAMED", 1)
    monkeypatch.setattr(finding, "_LARGEST", 7)
    for filters in (
        RunFilters(verdict="failed"),
        RunFilters(q="crm", group_id="g", verdict="failed"),
        RunFilters(workflow="crm.sync", verdict="failed", origin="server"),
    ):
        for summarised in (False, True):
            if summarised:
                fold_all(store.store)
            seen: list[str] = []
            cursor, pages = None, 0
            while pages == 0 or cursor is not None:
                page = store.reader.runs(1, filters, 2, cursor)
                seen += [run.run_id for run in page.items]
                cursor, pages = page.next, pages + 1
            assert seen == ["r3"]


@pytest.mark.parametrize("named", [1, 100])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_text_is_looked_up_after_the_latest_runs(
    store: Ingested, monkeypatch: pytest.MonkeyPatch, named: int, limit: int
) -> None:
    """D5: pages of a text are the whole list, whether its runs are gone through or looked up."""
    wanted = [26, 20, 3]
    for number in range(30):
        code = "E_RARE" if number in wanted else "E_OTHER"
        given = attempt("g", 1, run_id=f"r{number}", error__code=code)
        store.send(span(number + 1, given, failed=True))
    fold_all(store.store)
    monkeypatch.setattr(finding, "MOST_NAMED", named)
    monkeypatch.setattr(finding, "_ESTIMATE", 1)
    monkeypatch.setattr(finding, "_FIRST", 5)
    monkeypatch.setattr(finding, "_LARGEST", 3)
    for filters in (
        RunFilters(q="e_rare"),
        RunFilters(q="e_rare", verdict="failed"),
        RunFilters(q="rare", verdict="failed", workflow="crm.sync"),
    ):
        seen: list[str] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            page = store.reader.runs(1, filters, limit, cursor)
            seen += [run.run_id for run in page.items]
            cursor, pages = page.next, pages + 1
        assert seen == [f"r{number}" for number in wanted]


def test_a_cursor_is_of_its_filters(store: Ingested) -> None:
    """Contract, section 5: a cursor goes on in the list that gave it and in no other."""
    for number in range(3):
        store.send(span(number + 1, attempt("g", 1, run_id=f"r{number}")))
    page = store.reader.runs(1, RunFilters(workflow="crm.sync"), 1)
    assert store.reader.runs(1, RunFilters(workflow="crm.sync"), 1, page.next).items
    for other in (RunFilters(), RunFilters(workflow="x"), RunFilters(q="crm")):
        with pytest.raises(BadParameter, match="cursor"):
            store.reader.runs(1, other, 1, page.next)


def test_a_text_without_a_word_is_none(store: Ingested) -> None:
    """Contract, section 5: what cannot be looked for is refused, with the mend."""
    for asked, says in (("--", "set a text with a letter or a digit"), ("a-" * 65, "at most 64")):
        with pytest.raises(BadParameter, match=f"q: found .*{says}"):
            store.reader.runs(1, RunFilters(q=asked))


def test_reading_ends_in_time(store: Ingested) -> None:
    """Security: a statement that goes on for too long is ended: Unavailable, no hung reader."""
    reader = Reader(store.store, seconds=0.2)
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        " SELECT count(*) FROM n WHERE x < 0"
    )
    with pytest.raises(Unavailable, match="took too long"), reader._snapshot() as connection:
        connection.exec_driver_sql(endless)
    assert store.reader.runs(1).items == ()


def test_summaries_are_made_again_from_the_evidence(store: Ingested) -> None:
    """D5: all that is derived can be forgotten and made again, and reads the same meanwhile."""
    store.send(span(1, attempt("g", 1), failed=True), span(2, attempt("g", 2)), span(3, run_of()))
    fold_all(store.store)
    before = store.reader.overview(1, 0, NOW + 1)
    found = store.reader.runs(1, RunFilters(q="g crm")).items
    store.store.write(start_over).result()
    for _ in range(2):
        assert store.reader.overview(1, 0, NOW + 1) == before
        assert store.reader.runs(1, RunFilters(q="g crm")).items == found
        fold_all(store.store)
    assert found


def test_summaries_are_kept_while_a_backend_serves(store: Ingested) -> None:
    """D5: the thread folds what arrives, and ends when it is told to."""
    summariser = Summariser(store.store)
    summariser.start()
    store.send(span(1, attempt("g", 1)))
    for _ in range(600):
        if store.reader.ingest(1).waiting_runs == 0:
            break
        threading.Event().wait(0.05)
    assert store.reader.ingest(1).waiting_runs == 0
    summariser.stop()
    summariser.stop()
