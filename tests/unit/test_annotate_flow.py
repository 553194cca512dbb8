"""Runs and operations in every shape of Python: blocks, decorators, tasks, threads, generators."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest
from opentelemetry import baggage, context as otel

from flowmark_otel import Attempt, current_attempt, names, workflow
from flowmark_otel.annotate.context import identity_of
from tests.support.recorders import Recorder, recorder


@pytest.fixture(params=["captured", "none"])
def made(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """A client with our processor, and one without any SDK."""
    with recorder(request.param) as found:
        yield found
    assert identity_of() == (None, None)


def ends(made: Recorder) -> list[str]:
    """The ends of operations: name and how it ended."""
    return [
        f"{event.attributes[names.OPERATION_NAME]} {event.event.rpartition('.')[2]}"
        for event in made.sink.envelopes
        if event.event in {names.OPERATION_COMPLETED, names.OPERATION_FAILED}
    ]


def test_blocks_complete_or_fail(made: Recorder) -> None:
    """Contract, section 6: complete on exit, fail on an exception, which passes through."""
    with pytest.raises(ValueError, match="no"), workflow("w") as flow:  # noqa: PT012 - the story
        with flow.operation("fine"):
            pass
        with flow.operation("bad"):
            message = "no"
            raise ValueError(message)
    assert ends(made) == ["fine completed", "bad failed"]
    assert made.sink.told()[-1] == "run.failed"


def test_what_ended_already_is_left_alone(made: Recorder) -> None:
    """Contract, section 6: leaving a block whose operation has ended records nothing more."""
    with workflow("w") as flow:
        with flow.operation("o") as operation:
            operation.fail(code="GAVE_UP")
        flow.done(outcome="complete")
    assert ends(made) == ["o failed"]
    assert made.sink.told()[-1] == "run.completed"
    assert made.sink.diagnostics == []


def test_a_block_gives_its_identity(made: Recorder) -> None:
    """A26: inside a block the context has the run's identity, after it the context is as before."""
    before = otel.get_current()
    with workflow("w", run_id="r") as flow:
        assert identity_of() == ("w", "r")
        with flow.operation("o"):
            assert identity_of() == ("w", "r")
        with workflow("inner", run_id="s"):
            assert identity_of() == ("inner", "s")
        assert identity_of() == ("w", "r")
    assert otel.get_current() is before
    assert made.sink.refused == []


def test_a_decorator_records_each_call(made: Recorder) -> None:
    """A2: a decorated function keeps what it is, and each of its calls is an operation."""
    flow = workflow("w")

    @flow.operation("add")
    def add(one: int, other: int = 2) -> int:
        """Sum."""
        return one + other

    assert ends(made) == []
    assert (add(1), add(one=1, other=4)) == (3, 5)
    assert (add.__name__, add.__doc__) == ("add", "Sum.")
    assert ends(made) == ["add completed"] * 2


def test_a_decorator_with_an_attempt(made: Recorder) -> None:
    """E1: an attempt starts where it is made; the first call is that attempt, not one more."""
    flow = workflow("w")

    @flow.operation("push", attempt=Attempt("g", 1))
    def push() -> int:
        return current_attempt().number

    assert made.sink.told()[-1] == "operation.started"
    assert push() == 1
    assert made.sink.told() == ["run.started", "operation.started", "operation.completed"]


async def test_coroutines(made: Recorder) -> None:
    """A2: coroutine functions through acall, call and the decorator end when they were awaited."""
    flow = workflow("w")

    async def push(customer: str) -> str:
        await asyncio.sleep(0)
        assert identity_of().workflow == "w"
        return customer

    assert await flow.acall("acall", push, "Ada") == "Ada"
    later = flow.call("call", push, "Ada")
    assert ends(made) == ["acall completed"]
    assert await later == "Ada"
    decorated = flow.operation("decorated")(push)
    assert inspect.iscoroutinefunction(decorated)
    assert await decorated("Ada") == "Ada"
    assert ends(made) == ["acall completed", "call completed", "decorated completed"]


async def test_a_plain_function_through_acall(made: Recorder) -> None:
    """Contract, section 6: acall always runs its function and returns its result."""
    plain = partial(int, "3")
    assert await workflow("w").acall("o", plain) == 3  # type: ignore[arg-type]
    assert ends(made) == ["o completed"]


async def test_a_cancelled_task_has_failed(made: Recorder) -> None:
    """A2: a cancelled task ends its operation as failed, with the cancellation as its error."""
    flow = workflow("w")
    begun, never = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await never.wait()

    task = asyncio.create_task(flow.acall("wait", wait, attempt=Attempt("g", 1)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends(made) == ["wait failed"]
    assert str(made.sink.envelopes[-1].attributes[names.ERROR_TYPE]).endswith("CancelledError")


async def test_tasks_keep_their_own_attempt(made: Recorder) -> None:
    """B1: tasks that run at once each see the attempt they are in."""
    flow = workflow("w")
    both = asyncio.Barrier(2) if hasattr(asyncio, "Barrier") else None

    async def read() -> int:
        if both is not None:
            await both.wait()
        await asyncio.sleep(0)
        return current_attempt().number

    numbers = await asyncio.gather(
        *(flow.acall("o", read, attempt=Attempt("g", number)) for number in (1, 2))
    )
    assert numbers == [1, 2]
    assert ends(made) == ["o completed"] * 2


def test_threads(made: Recorder) -> None:
    """A26: a run can be handed to threads; their operations belong to it and to its trace."""
    flow = workflow("w", run_id="r")
    threads = [threading.Thread(target=flow.call, args=(f"o{number}", str)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends(made)) == [f"o{number} completed" for number in range(8)]
    assert {event.attributes[names.RUN_ID] for event in made.sink.envelopes} == {"r"}
    assert len({event.trace_id for event in made.sink.envelopes}) == 1


def test_one_operation_ended_by_many_threads(made: Recorder) -> None:
    """A2: however many threads end an operation, it is recorded once."""
    operation = workflow("w").operation("o")
    together = threading.Barrier(8)

    def end() -> None:
        together.wait()
        operation.complete()

    threads = [threading.Thread(target=end) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends(made) == ["o completed"]


def test_generators(made: Recorder) -> None:
    """A2: a generator's operation is current in its own code only, and ends with it."""
    flow = workflow("w")

    @flow.operation("read", attempt=Attempt("g", 1))
    def read() -> Iterator[int]:
        got = yield current_attempt().number
        assert got is None
        yield 7

    assert inspect.isgeneratorfunction(read)
    generator = read()
    assert next(generator) == 1
    assert identity_of() == (None, None)
    assert ends(made) == []
    assert list(generator) == [7]
    assert ends(made) == ["read completed"]


@pytest.mark.parametrize("how", ["close", "throw"])
def test_generators_that_are_left(made: Recorder, how: str) -> None:
    """A2: a generator that its consumer closes has completed, one that is thrown into failed."""
    flow = workflow("w")
    generator = flow.call("read", lambda: (number for number in range(9)))
    assert next(generator) == 0
    if how == "close":
        generator.close()
        assert ends(made) == ["read completed"]
    else:
        with pytest.raises(KeyError):
            generator.throw(KeyError())
        assert ends(made) == ["read failed"]


async def test_async_generators(made: Recorder) -> None:
    """A2: an asynchronous generator's operation ends when it is exhausted."""
    flow = workflow("w")

    @flow.operation("read")
    async def read() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            assert identity_of().workflow == "w"
            yield number

    found = []
    async for number in read():
        assert identity_of() == (None, None)
        found.append(number)
    assert found == [0, 1, 2]
    assert ends(made) == ["read completed"]


@pytest.mark.parametrize(("code", "how"), [(0, "completed"), (None, "completed"), (3, "failed")])
def test_leaving_the_program(made: Recorder, code: int | None, how: str) -> None:
    """A2: a program that exits with success has not failed."""
    with pytest.raises(SystemExit), workflow("w"):
        raise SystemExit(code)
    assert made.sink.told()[-1] == f"run.{how}"


@pytest.mark.parametrize("send", [True, False])
def test_baggage_is_written_only_if_asked(send: bool) -> None:  # noqa: FBT001 - both ways
    """Contract, section 1: identity travels as baggage only with FLOWMARK_BAGGAGE=send."""
    with recorder("captured", sends_baggage=send), workflow("w", run_id="r") as flow:
        found = baggage.get_all()
        assert dict(found) == ({names.WORKFLOW_NAME: "w", names.RUN_ID: "r"} if send else {})
        flow.operation("o").complete()


def test_spans_inside_a_run_are_stamped() -> None:
    """Contract, section 1: whatever starts inside a run carries its identity."""
    with recorder("captured") as made, workflow("w", run_id="r") as flow, flow.operation("o"):
        made.tracer().start_span("of a library").end()
    stamped = made.spans.get_finished_spans()[0].attributes or {}
    assert (stamped[names.WORKFLOW_NAME], stamped[names.RUN_ID]) == ("w", "r")
    assert "of a library" not in str(made.sink.envelopes)
