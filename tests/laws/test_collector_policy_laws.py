"""Laws of the decisions a node makes: tries, waits and budgets, without a clock."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings, strategies as st

from flowmark_otel.collector import budget as budgets
from flowmark_otel.collector.budget import Budget, Enter
from flowmark_otel.collector.element import INVALID_ENVELOPE
from flowmark_otel.collector.policy import Again, Failed, Over, Rules, after, try_seconds

NAMES: Final = (INVALID_ENVELOPE, "Unavailable", "Timeout", "Unauthorized", "Rejected")
seconds = st.floats(0.001, 100)
rules = st.builds(
    Rules,
    st.sampled_from(["fail", "continue", "route"]),
    st.integers(1, 10),
    seconds,
    seconds,
    st.frozensets(st.sampled_from(NAMES), max_size=3),
    st.frozensets(st.sampled_from(NAMES), max_size=3),
    seconds,
    seconds,
    st.booleans(),
)
failures = st.builds(
    Failed,
    st.sampled_from(NAMES),
    st.booleans(),
    st.booleans(),
    st.none() | st.floats(0, 1000),
)


@given(rules, failures, st.integers(1, 12), st.floats(0, 200), st.floats(0, 1))
def test_a_node_tries_no_more_often_and_no_longer_than_it_may(
    these: Rules, failed: Failed, tried: int, elapsed: float, jitter: float
) -> None:
    """C2, C5: never over ``max_attempts``, never a wait that ends after the deadline."""
    decision = after(failed, tried, elapsed, jitter, these)
    if isinstance(decision, Again):
        assert tried < these.max_attempts
        assert decision.seconds >= 0
        assert elapsed + decision.seconds < these.deadline
        if failed.retry_after is not None:
            assert decision.seconds == failed.retry_after
        else:
            assert decision.seconds <= these.longest_wait


@given(rules, failures, st.integers(1, 12), st.floats(0, 200), st.floats(0, 1))
def test_what_is_listed_decides_and_bad_input_is_not_tried_again(
    these: Rules, failed: Failed, tried: int, elapsed: float, jitter: float
) -> None:
    """C2: ``no_retry_on`` forbids, ``retry_on`` narrows, bad input has to be listed."""
    decision = after(failed, tried, elapsed, jitter, these)
    if isinstance(decision, Again):
        assert failed.name not in these.no_retry_on
        if these.retry_on:
            assert failed.name in these.retry_on
        else:
            assert failed.name != INVALID_ENVELOPE
            assert not failed.permanent


@given(rules, failures, st.floats(0, 200))
def test_what_failed_for_the_moment_is_kept_by_who_keeps(
    these: Rules, failed: Failed, elapsed: float
) -> None:
    """C1: the ``flowmark`` exporter neither drops nor routes what another try may help."""
    decision = after(failed, 10, elapsed, 0, these)
    assert isinstance(decision, Over)
    if these.keeps and not failed.permanent:
        assert decision.then == "fail"
    else:
        assert decision.then == these.on_error


@given(rules, st.floats(0, 200))
def test_a_try_ends_with_its_message(these: Rules, elapsed: float) -> None:
    """C5: a try takes no longer than one may, and none begins after the deadline."""
    found = try_seconds(elapsed, these)
    assert found <= these.try_seconds
    assert (found > 0) is (elapsed < these.deadline)


def test_waits_double_up_to_the_longest() -> None:
    """C2: back-off is exponential, and jitter takes up to half of it."""
    these = Rules(max_attempts=10, first_wait=0.2, longest_wait=1, deadline=1000)
    failed = Failed("Unavailable")
    waits = [after(failed, tried, 0, 0, these) for tried in range(1, 6)]
    assert waits == [Again(0.2), Again(0.4), Again(0.8), Again(1), Again(1)]
    assert after(failed, 1, 0, 1, these) == Again(0.1)


steps = st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=60)


@given(st.integers(0, 5), st.floats(1, 10), steps)
@settings(max_examples=200)
def test_a_budget_refuses_for_whole_windows_and_then_tries_one(
    most: int, window: float, history: list[tuple[bool, float]]
) -> None:
    """C3: more than ``max_failures`` within a window refuse; after a whole window one probe comes.

    A model that keeps all failures says the same.
    """
    budget = Budget(most, window)
    now = 0.0
    failures: list[float] = []
    spent_at: float | None = None
    for fails, passes in history:
        now += passes
        answer, budget = budgets.enter(budget, now)
        if spent_at is not None and now - spent_at < window:
            assert answer is Enter.NO
            continue
        assert answer is (Enter.YES if spent_at is None else Enter.PROBE)
        probe = answer is Enter.PROBE
        if not fails:
            budget = budgets.completed(budget, probe=probe)
            spent_at = None if probe else spent_at
            if probe:
                failures = []
            continue
        budget = budgets.failed(budget, now, probe=probe)
        failures = [at for at in failures if now - at < window] + [now]
        if probe or len(failures) > most:
            spent_at, failures = now, []
        assert budget.spent is (spent_at is not None)


def test_one_probe_at_a_time() -> None:
    """C3: while a probe is tried others are refused; one that nobody waits for frees its place."""
    budget = budgets.failed(Budget(0, 10), 1)
    assert budgets.enter(budget, 5)[0] is Enter.NO
    assert budgets.wait(budget, 5) == 6
    first, budget = budgets.enter(budget, 11)
    second, budget = budgets.enter(budget, 12)
    assert (first, second) == (Enter.PROBE, Enter.NO)
    third, budget = budgets.enter(budgets.abandoned(budget, probe=True), 13)
    assert third is Enter.PROBE
    assert not budgets.completed(budget, probe=True).spent
    again = budgets.failed(budget, 13, probe=True)
    assert budgets.enter(again, 22)[0] is Enter.NO
    assert budgets.enter(again, 23)[0] is Enter.PROBE


def test_a_message_from_before_does_not_move_the_window() -> None:
    """C3: what was on its way when the budget was spent neither lengthens nor ends the refusal."""
    budget = budgets.failed(Budget(0, 10), 1)
    assert budgets.failed(budget, 5) == budget
    assert budgets.completed(budget) == budget
