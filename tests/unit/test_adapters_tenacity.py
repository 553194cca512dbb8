"""Tenacity's own loop, recorded as it happens; the same tests run against its oldest release."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tenacity
from opentelemetry import context as otel
from opentelemetry.instrumentation.utils import suppress_instrumentation
from tenacity import (
    AsyncRetrying,
    RetryError,
    Retrying,
    retry,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
)

import flowmark_otel as flowmark
from flowmark_otel import names
from flowmark_otel.adapters import operation_name, recording
from flowmark_otel.adapters.tenacity import TenacityInstrumentor
from flowmark_otel.annotate.hook import client
from tests.support.adapting import Adapted, adapted

THREE = ["1 failed (ValueError)", "2 failed (ValueError)", "3 completed"]


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """The adapter on."""
    with adapted(TenacityInstrumentor()) as found:
        yield found


def third_time() -> Callable[[], int]:
    """A function that fails twice with a message nobody may see."""
    calls: list[int] = []

    def push() -> int:
        calls.append(1)
        if len(calls) < 3:
            msg = "secret"
            raise ValueError(msg)
        return len(calls)

    return push


def test_a_decorated_function(recorded: Adapted) -> None:
    """E3: each try is an attempt, its number from 1, the limit as the policy says it."""
    push = retry(stop=stop_after_attempt(5) | stop_after_delay(60))(third_time())
    assert push() == 3
    [(operation, attempts)] = recorded.groups()
    assert operation == f"{__name__}.third_time.<locals>.push"
    assert attempts == THREE
    assert {span.attributes[names.ATTEMPT_LIMIT] for span in recorded.spans} == {5}  # type: ignore[index]


def test_a_retrying_object_that_is_called(recorded: Adapted) -> None:
    """E3: without a stop there is no limit."""
    Retrying()(third_time())
    assert [attempts for _, attempts in recorded.groups()] == [THREE]
    assert names.ATTEMPT_LIMIT not in (recorded.spans[0].attributes or {})


def test_a_loop(recorded: Adapted) -> None:
    """E3: a block of a loop is a try, named by the function that the loop stands in."""
    push = third_time()
    for attempt in Retrying(stop=stop_after_attempt(3)):
        with attempt:
            push()
    [(operation, attempts)] = recorded.groups()
    assert operation.startswith(f"{__name__}.")
    assert operation.endswith("test_a_loop")
    assert attempts == THREE


@pytest.mark.parametrize("leave", ["return", "break"])
def test_a_loop_that_is_left(recorded: Adapted, leave: str) -> None:
    """E3: a block that is left early has completed; its span is current no more."""
    before = otel.get_current()

    def loop() -> None:
        for attempt in Retrying():
            with attempt:
                if leave == "return":
                    return
                break

    loop()
    assert otel.get_current() == before
    assert [attempts for _, attempts in recorded.groups()] == [["1 completed"]]


async def test_coroutines(recorded: Adapted) -> None:
    """E3: decorated, called and in a loop; the span is current while the function runs."""
    push = third_time()
    inside: list[int] = []

    async def push_async() -> int:
        await asyncio.sleep(0)
        with recorded.tracer.start_as_current_span("inner") as span:
            inside.append(span.get_span_context().trace_id)
        return push()

    assert await retry(push_async)() == 3
    push = third_time()
    assert await AsyncRetrying()(push_async) == 3
    push = third_time()
    async for attempt in AsyncRetrying():
        with attempt:
            await push_async()
    assert [attempts for _, attempts in recorded.groups()] == [THREE, THREE, THREE]
    assert recorded.traces == [each for each in inside for _ in ("inner", "try")]


async def test_calls_at_once_are_groups_of_their_own(recorded: Adapted) -> None:
    """A4: one fresh group for each call, in tasks and in threads."""

    async def push() -> None:
        await asyncio.sleep(0)

    decorated = retry(push)
    await asyncio.gather(*(decorated() for _ in range(5)))
    barrier = threading.Barrier(3)
    blocked = retry(barrier.wait)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: blocked(), range(3)))
    assert [attempts for _, attempts in recorded.groups()] == [["1 completed"]] * 8


async def test_a_task_that_is_cancelled(recorded: Adapted) -> None:
    """A11: its try has failed, by the cancellation, which passes through."""
    begun = asyncio.Event()

    @retry(stop=stop_after_attempt(2))
    async def push() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(push())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [(_, attempts)] = recorded.groups()
    assert attempts == ["1 failed (asyncio.exceptions.CancelledError)"]


@pytest.mark.parametrize("callback", [False, True])
def test_a_result_that_is_rejected(recorded: Adapted, callback: bool) -> None:  # noqa: FBT001
    """E3: a try whose result the policy rejects has failed, the last one too."""
    given: dict[str, Any] = (
        {"retry_error_callback": lambda state: state.outcome.result()} if callback else {}
    )
    push = retry(
        retry=retry_if_result(lambda found: not found), stop=stop_after_attempt(2), **given
    )
    if callback:
        assert push(lambda: 0)() == 0
    else:
        with pytest.raises(RetryError):
            push(lambda: 0)()
    assert push(lambda: 7)() == 7
    rejected, fine = [attempts for _, attempts in recorded.groups()]
    assert rejected == ["1 failed (result_rejected)", "2 failed (result_rejected)"]
    assert fine == ["1 completed"]


def test_exceptions_are_the_applications(recorded: Adapted) -> None:
    """Issue 8: what is raised is raised as without the adapter; TryAgain tries again."""
    error = KeyError("x")

    @retry(stop=stop_after_attempt(2), reraise=True)
    def push() -> None:
        raise error

    with pytest.raises(KeyError) as raised:
        push()
    assert raised.value is error
    seen: list[int] = []

    @retry
    def again() -> None:
        seen.append(1)
        if len(seen) == 1:
            raise tenacity.TryAgain

    again()
    assert [attempts for _, attempts in recorded.groups()] == [
        ["1 failed (KeyError)", "2 failed (KeyError)"],
        ["1 failed (tenacity.TryAgain)", "2 completed"],
    ]


def test_root_tries_stay_together(recorded: Adapted) -> None:
    """Issue 8: tries that are traces of their own share a run, with what is recorded inside."""
    push = third_time()

    def nested() -> None:
        Retrying()(lambda: None)
        push()

    Retrying()(nested)
    [run] = recorded.backend.runs()
    assert [group.operation.rpartition(".")[2] for group in run.groups].count("<lambda>") == 3
    assert len(set(recorded.traces)) == 3
    Retrying()(lambda: None)
    assert len(recorded.backend.runs()) == 2


def test_tries_inside_of_a_trace_or_a_workflow(recorded: Adapted) -> None:
    """Issue 8: they belong to the run that is active, else to the trace they stand in."""
    with recorded.tracer.start_as_current_span("request") as span:
        Retrying()(third_time())
    with flowmark.workflow("crm.sync", run_id="r1"):
        Retrying()(third_time())
    trace_id = format(span.get_span_context().trace_id, "032x")
    assert [(run.workflow, run.run_id) for run in recorded.backend.runs()] == [
        ("tests", trace_id),
        ("crm.sync", "r1"),
    ]
    assert [attempts for _, attempts in recorded.groups()] == [THREE, THREE]


def test_the_caller_names_the_operation(recorded: Adapted) -> None:
    """Issue 8: the name can be given; it is not that of what is retried within."""

    def outer() -> None:
        Retrying()(third_time())

    with operation_name("push-to-crm"):
        Retrying()(outer)
    named, inner = [operation for operation, _ in recorded.groups()]
    assert named == "push-to-crm"
    assert inner.endswith("push")


def test_nothing_of_arguments_results_and_messages(recorded: Adapted) -> None:
    """Issue 8: no argument, no result and no message of an error is anywhere on the spans."""

    def push(value: str) -> str:
        inner()
        return value

    inner = third_time()
    assert Retrying()(push, "first-name") == "first-name"
    for span in recorded.spans:
        text = span.to_json()
        assert "secret" not in text
        assert "first-name" not in text


def test_what_is_suppressed_is_not_recorded(recorded: Adapted) -> None:
    """Issue 8: where instrumentation is suppressed, as exporters do, nothing is recorded."""
    with suppress_instrumentation():
        Retrying()(third_time())
    assert recorded.groups() == []


def test_switched_off_it_is_gone() -> None:
    """Issue 8: uninstrument puts Tenacity's own methods back; functions go on working."""
    own = vars(tenacity.BaseRetrying)["iter"]
    push = retry(lambda: 1)
    with adapted(TenacityInstrumentor()) as found:
        assert vars(tenacity.BaseRetrying)["iter"] is not own
        push()
    assert vars(tenacity.BaseRetrying)["iter"] is own
    push()
    assert len(found.spans) == 1


@pytest.mark.parametrize("fault", ["clock", "tracer", "captured", "sink"])
def test_a_fault_inside_reaches_nobody(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: whatever raises in recording, the application's results and exceptions stand."""

    class Broken:
        """A client of which one part raises."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            if name == fault:
                msg = f"no {name}"
                raise RuntimeError(msg)
            return getattr(self._inner, name)

    with adapted(TenacityInstrumentor()):
        whole = client()
        monkeypatch.setattr(recording, "client", lambda: Broken(whole))
        before = otel.get_current()
        assert Retrying()(third_time()) == 3
        for attempt in Retrying(stop=stop_after_attempt(3)):
            with attempt:
                pass
        with pytest.raises(ZeroDivisionError):
            retry(stop=stop_after_attempt(1), reraise=True)(lambda: 1 / 0)()
        assert otel.get_current() == before
