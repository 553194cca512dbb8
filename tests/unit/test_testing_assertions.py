"""Recording into memory for a test, and what a failed assertion shows (contract, section 6)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import flowmark_otel as flowmark
from flowmark_otel.client import lifecycle
from flowmark_otel.testing import FakeClock, IdSequence, assert_attempts, recording

ROOT = Path(__file__).parents[2]
GROUP = "customer-batch-42"


def sync(*, fails: int) -> flowmark.Workflow[dict[str, int]]:
    """An application: pushes until it works, and reports."""
    flow: flowmark.Workflow[dict[str, int]] = flowmark.workflow("crm.sync")  # type: ignore[assignment]
    for number in range(1, fails + 2):
        op = flow.operation("push-to-crm", attempt=flowmark.Attempt(GROUP, number))
        if number <= fails:
            op.fail(code="CRM_UNAVAILABLE", retryable=True)
        else:
            op.complete()
    flow.done(outcome="complete", result={"imported": 3})
    return flow


def test_attempts_are_asserted_in_order() -> None:
    """A1: every failed and every successful attempt is a record of its own, in order."""
    with recording() as backend:
        flow = sync(fails=2)
        for run in (backend.run("crm.sync"), flow, flow.ref):
            assert_attempts(run, "push-to-crm", ["failed", "failed", "completed"])
        assert_attempts(flow, "other", [])
        run = backend.run()
        assert (run.status, run.outcome, dict(run.result)) == (
            "completed",
            "complete",
            {"imported": 3},
        )


def test_a_failed_assertion_shows_what_was_recorded() -> None:
    """A25: the message names the expectation and shows every attempt with its error code."""
    with recording():
        flow = sync(fails=1)
        with pytest.raises(AssertionError) as raised:
            assert_attempts(flow, "push-to-crm", ["completed"])
    assert str(raised.value) == (
        "attempts of push-to-crm: recorded 1 failed, 2 completed; expected completed\n"
        f"run {flow.run_id!r} of 'crm.sync': completed\n"
        f"  push-to-crm, group {GROUP!r}: after_retry\n"
        "    attempt 1 failed (CRM_UNAVAILABLE)\n"
        "    attempt 2 completed"
    )


def test_gaps_groups_and_open_attempts_are_told() -> None:
    """A10, A11: a missing number is no evidence, an attempt without end is open; neither passes."""
    with recording():
        flow = flowmark.workflow("crm.sync")
        flow.operation("push", attempt=flowmark.Attempt("a", 2)).complete()
        opened = flow.operation("push", attempt=flowmark.Attempt("b", 1))
        opened.span.set_attribute("note", "handle is kept: the attempt is open")
        with pytest.raises(AssertionError, match="2 groups recorded, name one by group_id"):
            assert_attempts(flow, "push", ["completed"])
        with pytest.raises(AssertionError, match=r"2 completed(.|\n)*no evidence of attempt 1"):
            assert_attempts(flow, "push", ["completed"], group_id="a")
        assert_attempts(flow, "push", ["open"], group_id="b")
        with pytest.raises(AssertionError, match="none recorded"):
            assert_attempts(flow, "pull", ["open"])


def test_wrong_use_raises_where_it_happens() -> None:
    """A26: FLOWMARK_STRICT is on: a wrong argument is an exception in the test, not a log line."""
    with recording():
        flow = flowmark.workflow("crm.sync")
        with pytest.raises(flowmark.InvalidUse, match="limit"):
            flow.operation("push", attempt=flowmark.Attempt("g", 1), limit=0)


def test_contradictions_fail_the_block() -> None:
    """A6: two records of one attempt surface at the end of the block if nobody flushed."""

    def test() -> None:
        with recording():
            flow = sync(fails=0)
            flow.operation("push-to-crm", attempt=flowmark.Attempt(GROUP, 1)).fail()

    with pytest.raises(flowmark.DeliveryError, match="conflict"):
        test()


def test_an_ordered_failure_is_the_applications_to_meet() -> None:
    """A22: with the backend unavailable flush raises to the application, the block ends quietly."""
    with recording() as backend:
        backend.available = False
        sync(fails=0)
        with pytest.raises(flowmark.DeliveryError, match="unavailable"):
            flowmark.flush(0.05)


def test_the_client_is_as_before() -> None:
    """A25: what is recorded after the block goes where it went before, and blocks can be nested."""
    before = lifecycle._process.client
    with recording() as outer:
        first = sync(fails=0)
        with recording() as inner:
            second = sync(fails=0)
            assert [run.ref for run in inner.runs()] == [second.ref]
        third = sync(fails=0)
        assert [run.ref for run in outer.runs()] == [first.ref, third.ref]
    assert lifecycle._process.client is before
    with pytest.raises(AssertionError, match="nothing is recorded into memory"):
        assert_attempts(first, "push-to-crm", ["completed"])


def test_a_spool_of_the_environment_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1: a test takes nothing out of the spool that real processes deliver from."""
    monkeypatch.setenv("FLOWMARK_SPOOL_DIR", str(tmp_path / "spool"))
    with recording() as backend:
        assert_attempts(sync(fails=0), "push-to-crm", ["completed"])
        assert len(backend.runs()) == 1
    assert not (tmp_path / "spool").exists()


def test_wrong_settings_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A26: a setting of the environment that cannot be used fails the test that meets it."""
    monkeypatch.setenv("FLOWMARK_TIMEOUT", "soon")
    block = recording()
    with pytest.raises(flowmark.ConfigurationError, match="FLOWMARK_TIMEOUT"):
        block.__enter__()


def test_ids_and_times_can_be_given() -> None:
    """A25: with a fake clock and an id sequence a recorded run is the same every time."""
    clock = FakeClock(start_ns=1_000)
    provider = TracerProvider(id_generator=IdSequence(), shutdown_on_exit=False)
    with recording(tracer_provider=provider, clock=clock) as backend:
        flow = flowmark.workflow("crm.sync", run_id="r1")
        clock.advance(2)
        flow.done()
        run = backend.run()
    ids = f"{1:032x}-{1:016x}"
    assert [event.event_id for event in run.events] == [f"run-{ids}-start", f"run-{ids}-end"]
    assert [event.sent_at for event in run.events] == [1_000, 2_000_001_000]


def test_spans_of_a_given_provider_are_recorded() -> None:
    """A2, D4: plain attributes on the application's own spans are recorded as well."""
    provider = TracerProvider(shutdown_on_exit=False)
    with recording(tracer_provider=provider) as backend:
        attributes = flowmark.attributes(attempt=flowmark.Attempt("g", 1))
        with provider.get_tracer("app").start_as_current_span(
            "push", attributes=attributes
        ) as span:
            span.set_status(trace.StatusCode.ERROR)
        assert_attempts(backend.run(), "push", ["failed"])


def test_the_fixture_in_a_project_of_its_own(tmp_path: Path) -> None:
    """A26: one import in conftest.py gives the fixture; it is strict, and apart for each test."""
    (tmp_path / "conftest.py").write_text(
        "from flowmark_otel.testing.plugin import flowmark_backend\n"
    )
    (tmp_path / "test_app.py").write_text(
        "import flowmark_otel as flowmark, pytest\n"
        "from flowmark_otel.testing import assert_attempts\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "def test_attempt(flowmark_backend, number):\n"
        "    flow = flowmark.workflow('crm.sync')\n"
        "    flow.operation('push', attempt=flowmark.Attempt('g', 1)).fail(code='X')\n"
        "    assert_attempts(flowmark_backend.run('crm.sync'), 'push', ['failed'])\n"
        "def test_conflict(flowmark_backend):\n"
        "    flow = flowmark.workflow('crm.sync')\n"
        "    for _ in range(2):\n"
        "        flow.operation('push', attempt=flowmark.Attempt('g', 1)).fail(code='X')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert re.search(r"3 passed.* 1 error", done.stdout), done.stdout
    assert "conflict" in done.stdout
