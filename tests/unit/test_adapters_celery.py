"""Celery's own worker on a broker in memory; the same tests run against its oldest release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final, NamedTuple

import pytest
from celery import Celery, signals
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Ignore, Reject
from opentelemetry import context as otel
from opentelemetry.instrumentation.celery import CeleryInstrumentor as Stock

from flowmark_otel.adapters import recording
from flowmark_otel.adapters.celery import CeleryInstrumentor
from flowmark_otel.errors import DeliveryError
from flowmark_otel.testing.runs import RecordedRun, attempt_line
from tests.support.adapting import Adapted, adapted

WAIT: Final = 20
AGAIN: Final[dict[str, Any]] = {"countdown": 0}


class Unpicklable(Exception):
    """An error that Celery can hand on as a copy of another type only."""

    def __init__(self, one: object, other: object) -> None:
        super().__init__(one, other)
        self.held = lambda: None


def made() -> Celery:
    """An application with a broker and results in memory."""
    app = Celery("tests", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(
        broker_transport_options={"polling_interval": 0.01},
        broker_connection_retry_on_startup=False,
        worker_hijack_root_logger=False,
    )
    return app


def retrying(app: Celery, name: str, act: Callable[[], object], **options: Any) -> Any:
    """A task that asks to be retried where ``act`` fails, as most are written."""

    @app.task(shared=False, bind=True, name=name, **options)
    def task(self: Any) -> str:
        try:
            act()
        except (ValueError, Unpicklable) as error:
            raise self.retry(exc=error, **AGAIN) from None
        return "done"

    return task


def failing(times: int, error: Callable[[], Exception]) -> Callable[[], None]:
    """What raises so many times."""
    calls = count(1)

    def act() -> None:
        if next(calls) <= times:
            raise error()

    return act


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """The adapter on, for tasks that are executed where they are called."""
    with adapted(CeleryInstrumentor()) as found:
        yield found


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_the_span_of_its_instrumentation_is_the_try(
    recorded: Adapted, *, links: bool, first: bool
) -> None:
    """Issue 8: beside Celery's instrumentation no span is opened, and one try counts once.

    Whichever was switched on first, and whether tries are one trace or several.
    """
    adapter, stock = CeleryInstrumentor(), Stock()  # type: ignore[no-untyped-call]
    if not first:
        adapter.uninstrument()
    stock.instrument(tracer_provider=recorded.provider, use_span_links=links)
    adapter.instrument()
    before = otel.get_current()
    try:
        answer = retrying(made(), "crm.sync", failing(1, ValueError)).apply()
    finally:
        stock.uninstrument()
    assert otel.get_current() == before
    assert recorded.groups() == [("crm.sync", ["1 failed (ValueError)", "2 completed"])]
    [run] = recorded.backend.runs()
    assert run.run_id == answer.id
    assert [span.name for span in recorded.spans] == ["run/crm.sync"] * 2
    assert recorded.diagnostics == []


def test_eager(recorded: Adapted) -> None:
    """E3: tasks that are executed where they are called are attempts too; errors pass."""
    app = made()
    before = otel.get_current()
    assert retrying(app, "crm.sync", failing(1, ValueError)).apply().get() == "done"

    @app.task(shared=False, name="broken")
    def broken() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        broken.apply(throw=True)
    assert otel.get_current() == before
    assert recorded.groups() == [
        ("crm.sync", ["1 failed (ValueError)", "2 completed"]),
        ("broken", ["1 failed (KeyError)"]),
    ]


def test_a_fault_inside_reaches_nobody(recorded: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: whatever raises in recording, the task goes on."""

    def broken() -> None:
        raise RuntimeError

    monkeypatch.setattr(recording, "client", broken)
    assert retrying(made(), "crm.sync", failing(1, ValueError)).apply().get() == "done"
    assert len(recorded.spans) == 0


def test_suppressed(recorded: Adapted) -> None:
    """Issue 8: where instrumentation is suppressed nothing is recorded."""
    token = otel.attach(otel.set_value(otel._SUPPRESS_INSTRUMENTATION_KEY, value=True))
    try:
        assert retrying(made(), "crm.sync", failing(1, ValueError)).apply().get() == "done"
    finally:
        otel.detach(token)
    assert recorded.groups() == []


def test_switched_off_it_is_gone() -> None:
    """Issue 8: nothing listens any more, and tasks go on."""
    task = retrying(made(), "crm.sync", failing(0, ValueError))
    before = len(signals.task_prerun.receivers)
    with adapted(CeleryInstrumentor()) as found:
        assert task.apply().get() == "done"
        assert len(signals.task_prerun.receivers) == before + 1
    assert len(signals.task_prerun.receivers) == before
    assert task.apply().get() == "done"
    assert len(found.spans) == 1


class Worked(NamedTuple):
    """A worker that has the adapter on, and what was recorded of its tasks."""

    app: Celery
    recorded: Adapted

    def run(self, task: Any) -> Any:
        """Have a task executed by the worker to its end; its result before it is asked for."""
        answer = task.delay()
        answer.get(timeout=WAIT, interval=0.01, propagate=False)
        self.settle()
        return answer

    def settle(self) -> None:
        """Wait until what was sent before has ended: the worker takes one after the other."""
        self.app.tasks["next"].delay().get(timeout=WAIT, interval=0.01)

    def of(self, name: str) -> tuple[list[str], set[object], RecordedRun]:
        """The attempts of an operation, what they say is allowed, and their run."""
        [found] = [run for run in self.recorded.backend.runs() if name in _operations(run)]
        [group] = [group for group in found.groups if group.operation == name]
        spans = [span.attributes or {} for span in self.recorded.spans if span.name == name]
        allowed: set[object] = {each.get("flowmark.attempt.limit") for each in spans}
        return [attempt_line(each) for each in group.attempts], allowed, found


def _operations(run: RecordedRun) -> set[str]:
    return {group.operation for group in run.groups}


@pytest.fixture(scope="module")
def worked() -> Iterator[Worked]:
    """A worker in a thread of its own, one for all tests: to stop it takes seconds."""
    app = made()
    with adapted(CeleryInstrumentor()) as recorded:
        _tasks(app, recorded)
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=WAIT):
            yield Worked(app, recorded)


def _tasks(app: Celery, recorded: Adapted) -> None:
    retrying(app, "by task", failing(2, ValueError), max_retries=4)
    retrying(app, "unpicklable", failing(2, lambda: Unpicklable(1, 2)), max_retries=1)
    comes_again = failing(1, lambda: Reject(requeue=True))

    @app.task(
        shared=False,
        autoretry_for=(OSError,),
        retry_kwargs={"max_retries": 1, **AGAIN},
        name="by celery",
    )
    def by_celery() -> None:
        raise ConnectionRefusedError

    @app.task(shared=False, name="ignored")
    def ignored() -> None:
        raise Ignore

    @app.task(shared=False, name="rejected", acks_late=True)
    def rejected() -> None:
        raise Reject(requeue=False)

    @app.task(shared=False, bind=True, name="for nothing", max_retries=None)
    def for_nothing(self: Any) -> int:
        if self.request.retries == 0:
            raise self.retry(**AGAIN)
        return 1

    @app.task(shared=False, name="comes again", acks_late=True)
    def redelivered() -> None:
        comes_again()

    @app.task(shared=False, name="next")
    def following() -> None:
        pass

    inner = retrying(app, "inner", failing(0, ValueError))

    @app.task(shared=False, name="outer")
    def outer() -> None:
        attributes = {"flowmark.operation.name": "within"}
        with recorded.tracer.start_as_current_span("within", attributes=attributes):
            inner.delay()


def test_retry_by_the_task(worked: Worked) -> None:
    """E3: executions are attempts of the task id, failed by what ``retry`` was raised for."""
    answer = worked.run(worked.app.tasks["by task"])
    assert answer.get(timeout=WAIT) == "done"
    attempts, allowed, run = worked.of("by task")
    assert attempts == ["1 failed (ValueError)", "2 failed (ValueError)", "3 completed"]
    assert allowed == {5}
    assert run.run_id == answer.id
    assert [group.group_id for group in run.groups] == [answer.id]


def test_retry_by_celery(worked: Worked) -> None:
    """E3: the same where Celery tries again by itself, in vain; its limit is what it was told."""
    answer = worked.run(worked.app.tasks["by celery"])
    with pytest.raises(ConnectionRefusedError):
        answer.get(timeout=WAIT)
    attempts, allowed, _ = worked.of("by celery")
    assert attempts == [f"{number} failed (ConnectionRefusedError)" for number in (1, 2)]
    assert allowed == {2}


def test_errors_that_cannot_be_handed_on(worked: Worked) -> None:
    """Issue 8: the error is the real one, also where Celery itself passes on a copy."""
    worked.run(worked.app.tasks["unpicklable"])
    attempts, _, _ = worked.of("unpicklable")
    assert attempts == [f"{number} failed ({__name__}.Unpicklable)" for number in (1, 2)]


def test_other_ends(worked: Worked) -> None:
    """E3: a task that is not to be answered has completed, one that refuses its message failed."""
    for name in ("ignored", "rejected"):
        worked.app.tasks[name].delay()
    worked.run(worked.app.tasks["for nothing"])
    assert worked.of("ignored")[:2] == (["1 completed"], {None})
    assert worked.of("rejected")[:2] == (["1 failed (celery.exceptions.Reject)"], {None})
    assert worked.of("for nothing")[:2] == (
        ["1 failed (celery.exceptions.Retry)", "2 completed"],
        {None},
    )


def test_tasks_of_one_root_are_one_run(worked: Worked) -> None:
    """Issue 8: what a task starts, and records inside, belongs to its run."""
    root = worked.run(worked.app.tasks["outer"])
    worked.settle()
    for name in ("outer", "inner"):
        assert worked.of(name)[2].run_id == root.id
    [within] = [span for span in worked.recorded.spans if span.name == "within"]
    assert (within.attributes or {})["flowmark.run.id"] == root.id


def test_a_message_that_comes_again(worked: Worked) -> None:
    """Issue 8: a redelivery is the same try; both executions say so, and nobody makes one up."""
    worked.run(worked.app.tasks["comes again"])
    worked.settle()
    with pytest.raises(DeliveryError, match="attempt 1 of this group was accepted with another"):
        worked.recorded.backend.runs()
    attempts, _, run = worked.of("comes again")
    assert attempts == ["1 failed (celery.exceptions.Reject)"]
    assert [group.verdict for group in run.groups] == ["undetermined"]
