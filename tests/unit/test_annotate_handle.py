"""What the handle promises, in a block, a call, a thread, a task and an asynchronous block."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from typing import Any, TypeAlias

import pytest

import flowmark_otel as flowmark
from flowmark_otel import Attempt, current_attempt, names
from flowmark_otel.fold.redact import served_idempotency_key
from flowmark_otel.testing import FakeClock
from flowmark_otel.testing.clock import START_NS
from tests.support.recorders import SECOND, START, Recorder, recorder

Act: TypeAlias = Callable[[], object]
Mode: TypeAlias = Callable[[flowmark.Workflow, Act, Any], None]
NOW_MS = START_NS // 1_000_000


def block(flow: flowmark.Workflow, act: Act, options: Any) -> None:
    """In a block."""
    with flow.operation("o", **options):
        act()


def call(flow: flowmark.Workflow, act: Act, options: Any) -> None:
    """In a called function."""
    flow.call("o", act, **options)


def decorated(flow: flowmark.Workflow, act: Act, options: Any) -> None:
    """In a decorated function."""
    flow.operation("o", **options)(act)()


def thread(flow: flowmark.Workflow, act: Act, options: Any) -> None:
    """In a thread, which has no context of its own."""
    other = threading.Thread(target=lambda: block(flow, act, options))
    other.start()
    other.join()


def task(flow: flowmark.Workflow, act: Act, options: Any) -> None:
    """In an awaited coroutine function."""

    async def function() -> None:
        await asyncio.sleep(0)
        act()

    async def main() -> None:
        await asyncio.create_task(flow.acall("o", function, **options))

    asyncio.run(main())


def async_block(flow: flowmark.Workflow, act: Act, options: Any) -> None:
    """In a block of a coroutine."""

    async def main() -> None:
        async with flow.operation("o", **options):
            await asyncio.sleep(0)
            act()

    asyncio.run(main())


def to_thread(flow: flowmark.Workflow, act: Act, options: Any) -> None:
    """In a thread of a task, which takes the task's context along."""

    async def main() -> None:
        async with flow.operation("o", **options):
            await asyncio.to_thread(act)

    asyncio.run(main())


modes = pytest.mark.parametrize(
    "mode", [block, call, decorated, thread, task, async_block, to_thread]
)


@pytest.fixture
def made() -> Iterator[Recorder]:
    """A client in memory, by a clock that stands still."""
    with recorder(clock=FakeClock()) as found:
        yield found
    assert found.sink.refused == []


def run(mode: Mode, act: Act, **options: object) -> None:
    """Act in this mode; what it asserts is raised here."""
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised again on the thread of the test
            raised.append(error)

    mode(flowmark.workflow("w", run_id="r"), guarded, options)
    for error in raised:
        raise error


def recorded(made: Recorder) -> dict[str, object]:
    """What the end of the operation says of the attempt."""
    last = made.sink.envelopes[-1]
    assert last.event == names.OPERATION_COMPLETED
    return {key: value for key, value in last.attributes.items() if "attempt" in key}


@modes
def test_number_and_limit(made: Recorder, mode: Mode) -> None:
    """B1: number from 1 and the attempts allowed in total; without a limit it is not known."""
    seen: list[tuple[int, int | None]] = []

    def act() -> None:
        seen.append((current_attempt().number, current_attempt().limit))

    run(mode, act, attempt=Attempt("g", 2), limit=3)
    assert (recorded(made)[names.ATTEMPT_NUMBER], recorded(made)[names.ATTEMPT_LIMIT]) == (2, 3)
    run(mode, act, attempt=Attempt("g", 3))
    run(mode, act)
    assert recorded(made) == {}
    assert seen == [(2, 3), (3, None), (1, 1)]


@modes
def test_deadline_and_what_remains(made: Recorder, mode: Mode) -> None:
    """B2: the deadline and milliseconds until it; reading either is recorded, and nothing else."""
    run(mode, lambda: current_attempt().number, deadline=NOW_MS + 20)
    assert names.ATTEMPT_TIME_READ not in recorded(made)

    def act() -> None:
        assert current_attempt().remaining() == 20
        assert current_attempt().deadline == NOW_MS + 20

    run(mode, act, deadline=NOW_MS + 20)
    assert recorded(made)[names.ATTEMPT_TIME_READ] is True

    def without() -> None:
        assert current_attempt().remaining() == math.inf
        assert current_attempt().deadline is None

    run(mode, without)


@modes
def test_idempotency_key(made: Recorder, mode: Mode) -> None:
    """B3: the real key, by rule or as given, the same for every attempt; a digest is recorded."""
    keys: list[str | None] = []

    def act() -> None:
        keys.append(current_attempt().idempotency_key)

    for number in (1, 2):
        attempt = Attempt("g", number)
        run(mode, act, attempt=attempt, idempotency_key=lambda *told: "/".join(told))
    run(mode, act, idempotency_key="key")
    assert keys == ["w/r/o/g", "w/r/o/g", "key"]
    assert recorded(made)[names.ATTEMPT_IDEMPOTENCY_KEY] == served_idempotency_key("key")
    assert "w/r/o/g" not in str(made.sink.events)


@modes
def test_series_system_and_timeout(made: Recorder, mode: Mode) -> None:
    """B4, B6, B7: the named series, the outside system and the cap; each None if nobody said."""
    told: list[object] = []

    def act() -> None:
        handle = current_attempt()
        told.append((handle.series, handle.system, handle.timeout))

    run(mode, act, series="s", system="crm", timeout=60_000)
    assert recorded(made) == {
        names.ATTEMPT_SERIES_NAME: "s",
        names.ATTEMPT_SYSTEM_NAME: "crm",
        names.ATTEMPT_TIMEOUT_MS: 60_000,
    }
    run(mode, act)
    assert told == [("s", "crm", 60_000), (None, None, None)]


@modes
def test_reports(made: Recorder, mode: Mode) -> None:
    """B8: the hook gets one frozen record and no error object; malformed and late are as told."""
    handles: list[flowmark.AttemptHandle] = []
    secret = LookupError("Bearer hunter2hunter2hunter2")

    def act() -> None:
        handle = current_attempt()
        handles.append(handle)
        given: Any = {"number": 1, "outcome": "failed", "started_at": START}
        with pytest.raises(TypeError, match="ended_at is a NoneType"):
            handle.report(**{**given, "ended_at": None})
        handle.report(**given, ended_at=START + SECOND, error=secret)

    run(mode, act, attempt=Attempt("g", 1))
    assert made.sink.told()[-3:] == [
        "operation.started",
        "attempt.observed",
        "operation.completed",
    ]
    [record] = made.reported
    assert type(record) is flowmark.ObservedAttempt
    assert (record.workflow, record.run_id, record.operation) == ("w", "r", "o")
    assert record.error_type == "LookupError"
    assert "hunter2" not in repr(record)
    said: Any = record
    assert not any(isinstance(getattr(said, field), BaseException) for field in said.__slots__)
    with pytest.raises(FrozenInstanceError):
        said.number = 2
    handles[0].report(number=2, outcome="completed", started_at=START, ended_at=START)
    assert made.sink.codes() == [names.DIAGNOSTIC_LATE_REPORT]
    assert len(made.reported) == 1


@modes
def test_never_serialised(made: Recorder, mode: Mode) -> None:
    """B9: neither the handle nor its signal leaves the process."""

    def act() -> None:
        for live in (current_attempt(), current_attempt().signal):
            with pytest.raises(TypeError, match="bound to its process"):
                pickle.dumps(live)

    run(mode, act)
    assert recorded(made) == {}


def test_the_default_handle() -> None:
    """B1: where nobody said otherwise it is attempt 1 of 1, without deadline, and not recorded."""
    with recorder() as made:
        handle = flowmark.current_attempt()
        assert (handle.number, handle.limit, handle.deadline) == (1, 1, None)
        assert handle.remaining() == math.inf
        with flowmark.workflow("w").operation("o"):
            assert (flowmark.current_attempt().number, flowmark.current_attempt().limit) == (1, 1)
    assert not any(names.ATTEMPT_NUMBER in event.attributes for event in made.sink.envelopes)


@pytest.mark.parametrize("kind", ["captured", "none"])
def test_the_handle_of_an_attempt(kind: str) -> None:
    """B1-B4, B6, B7: the handle tells what was said of the attempt, and the real key."""
    with recorder(kind) as made:
        flow = flowmark.workflow("w")
        with flow.operation(
            "o",
            attempt=Attempt("g", 2),
            deadline=START // 1_000_000 + 60_000,
            timeout=500,
            system="crm",
            series="push",
            idempotency_key="key",
        ):
            handle = flowmark.current_attempt()
            assert (handle.number, handle.limit, handle.timeout) == (2, None, 500)
            assert (handle.system, handle.series, handle.idempotency_key) == ("crm", "push", "key")
            assert 0 < handle.remaining() < 60_000
        assert flowmark.current_attempt().number == 1
    assert names.ATTEMPT_TIME_READ not in made.sink.envelopes[1].attributes
    assert made.sink.envelopes[-1].attributes[names.ATTEMPT_TIME_READ] is True


def test_time_that_was_not_read_is_not_recorded() -> None:
    """B2: only reading the time marks the record."""
    with recorder() as made, flowmark.workflow("w").operation("o", attempt=Attempt("g", 1)):
        assert flowmark.current_attempt().number == 1
    assert names.ATTEMPT_TIME_READ not in made.sink.envelopes[-1].attributes


@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy])
def test_the_handle_is_never_serialised(act: Callable[[object], object]) -> None:
    """B9: pickling or copying a handle raises."""
    with recorder(), pytest.raises(TypeError, match="bound to its process"):
        act(flowmark.current_attempt())
