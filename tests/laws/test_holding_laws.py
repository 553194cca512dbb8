"""Laws of the judge with tombstones and quotas, for any history in any order."""

from __future__ import annotations

from hypothesis import given, strategies as st

from flowmark_otel import names
from flowmark_otel.backend.batch import Verdict, prepare
from flowmark_otel.backend.holding import NO_LIMITS, Holding, Limits
from flowmark_otel.backend.judge import Judge
from flowmark_otel.backend.known import Known
from flowmark_otel.model import Envelope, run_key
from tests.support.envelopes import NOW, batch, completed, failed, started

RUNS = ("r1", "r2", "r3")
WORKFLOWS = ("w1", "w2")
OPERATIONS = ("push", "pull")
PROJECT = 1


@st.composite
def histories(draw: st.DrawFn) -> list[Envelope]:
    """Starts and ends without a conflict, in any order, some of them twice."""
    found: list[Envelope] = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        # The place follows from the number, so no place is named with two operation ids.
        attempt = draw(st.sampled_from((None, (f"g{number % 3}", number))))
        given_ = {
            "workflow": WORKFLOWS[number % 2],
            "run": RUNS[number % 3],
            "operation": OPERATIONS[number // 2 % 2],
        }
        events = [
            started(number, attempt, **given_),
            draw(st.sampled_from((completed, failed)))(number, attempt, **given_),
        ]
        found += draw(st.lists(st.sampled_from(events), min_size=1, max_size=3))
    return draw(st.permutations(found))


def judged(known: Known, history: list[Envelope], size: int) -> tuple[list[Judge], Verdict]:
    """The judges of a history, in requests of a size, and the sum of their verdicts."""
    judges, verdicts = [], []
    for at in range(0, len(history), size):
        judge = Judge(known, NOW)
        verdicts.append(judge.judge(prepare(batch(history[at : at + size])), [1]))
        judges.append(judge)
    total = Verdict(
        sum(each.stored for each in verdicts),
        sum(each.duplicate for each in verdicts),
        [one for each in verdicts for one in each.rejections],
        sum(each.rejected_items for each in verdicts),
        sum(each.expired for each in verdicts),
    )
    return judges, total


def run_of(event: Envelope) -> bytes:
    """The key of the run that an event names."""
    attributes = event.attributes
    named = (str(attributes[names.WORKFLOW_NAME]), str(attributes[names.RUN_ID]))
    return run_key(PROJECT, names.ORIGIN_SERVER, *named)


sizes = st.integers(1, 8)


@given(histories(), st.sets(st.sampled_from(RUNS)), sizes)
def test_a_tombstone_takes_all_of_its_run_and_nothing_else(
    history: list[Envelope], gone: set[str], size: int
) -> None:
    """A8: events of a run that was removed are duplicates, counted expired; none is stored.

    The others are judged as if those had never been sent.
    """
    buried = {run_of(event) for event in history if event.attributes[names.RUN_ID] in gone}
    rest = [event for event in history if run_of(event) not in buried]
    known = Known(tombstones=set(buried))
    judges, verdict = judged(known, history, size)
    _, alone = judged(Known(), rest, size)
    assert verdict.expired == len(history) - len(rest)
    assert verdict.duplicate == alone.duplicate + verdict.expired
    assert (verdict.stored, verdict.rejections) == (alone.stored, alone.rejections)
    assert not known.runs.keys() & buried
    assert not any(judge.rejected for judge in judges)


limits = st.builds(
    Limits,
    *(st.one_of(st.none(), st.integers(0, most)) for most in (12, 2, 4, 4)),
)


@given(histories(), limits, sizes)
def test_no_quota_is_ever_passed(history: list[Envelope], quotas: Limits, size: int) -> None:
    """Issue 4, quotas: whatever the order, what is held stays within; each event has its verdict.

    What is refused leaves nothing that a later event would meet.
    """
    holding = Holding(quotas)
    known = Known(holdings={PROJECT: holding})
    _, verdict = judged(known, history, size)
    assert verdict.stored + verdict.duplicate + len(verdict.rejections) == len(history)
    assert {each.code for each in verdict.rejections} <= {names.LIMIT}
    held = (holding.events, holding.workflows, holding.operations, holding.groups)
    for number, most in zip(held, quotas, strict=True):
        assert most is None or number <= most
    assert len(known.events) == holding.events == verdict.stored
    assert len(known.groups) == holding.groups
    assert {run.workflow for run in known.runs.values()} == {
        workflow for workflow, operation in holding.names if not operation
    }


@given(histories(), limits, sizes)
def test_what_was_over_a_quota_is_stored_once_there_is_room(
    history: list[Envelope], quotas: Limits, size: int
) -> None:
    """Issue 4, quotas: a raised quota and the same events again lead where no quota would have."""
    holding = Holding(quotas)
    known = Known(holdings={PROJECT: holding})
    judged(known, history, size)
    holding.limits = NO_LIMITS
    _, verdict = judged(known, history, size)
    free = Known()
    judged(free, history, size)
    assert not verdict.rejections
    assert known.events.keys() == free.events.keys()
    assert _statuses(known) == _statuses(free)
    assert known.places == {replace_run(known, free, place) for place in free.places}


def _statuses(known: Known) -> dict[tuple[bytes, str], tuple[str, str, str | None]]:
    """What is remembered of each operation, by the keys of runs and not by their ids."""
    keys = {run.id: run.key for run in known.runs.values()}
    return {
        (keys[run], operation_id): (one.operation, one.status, one.group_id)
        for (run, operation_id), one in known.occurrences.items()
    }


def replace_run(
    known: Known, free: Known, place: tuple[int, str, str, int]
) -> tuple[int, str, str, int]:
    """A place with the id that its run has elsewhere."""
    [key] = [run.key for run in free.runs.values() if run.id == place[0]]
    return (known.runs[key].id, *place[1:])
