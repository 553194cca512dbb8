"""backoff's own loop, recorded as it happens; the same tests run against its oldest release."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import backoff
import pytest
from opentelemetry import context as otel

from flowmark_otel.adapters import recording
from flowmark_otel.adapters.backoff import BackoffInstrumentor
from tests.support.adapting import Adapted, adapted

THREE = ["1 failed (ValueError)", "2 failed (ValueError)", "3 completed"]
FAST: dict[str, Any] = {"interval": 0, "jitter": None}


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """The adapter on."""
    with adapted(BackoffInstrumentor()) as found:
        yield found


def third_time() -> Callable[[], int]:
    """A function that fails twice."""
    calls: list[int] = []

    def push() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError
        return len(calls)

    return push


def test_on_exception(recorded: Adapted) -> None:
    """E3: three tries are three attempts of one group, named by the function, with the limit."""
    push = backoff.on_exception(backoff.constant, ValueError, max_tries=4, **FAST)(third_time())
    before = otel.get_current()
    assert push() == 3
    assert otel.get_current() == before
    assert recorded.groups() == [(f"{__name__}.third_time.<locals>.push", THREE)]
    assert {dict(span.attributes or {})["flowmark.attempt.limit"] for span in recorded.spans} == {4}


@pytest.mark.parametrize("limit", [4, lambda: 4])
async def test_the_limit(recorded: Adapted, limit: Any) -> None:
    """E3: how many tries are allowed is said by each, also where backoff asks a function."""
    push = third_time()

    @backoff.on_exception(backoff.constant, ValueError, max_tries=limit, **FAST)
    async def push_async() -> int:
        return push()

    assert backoff.on_exception(backoff.constant, ValueError, max_tries=limit, **FAST)(
        third_time()
    )()
    assert await push_async() == 3
    said = [(span.attributes or {}).get("flowmark.attempt.limit") for span in recorded.spans]
    assert said == [4] * 6


async def test_coroutine_functions(recorded: Adapted) -> None:
    """E3: the same where it is awaited; calls at once are groups of their own."""

    @backoff.on_exception(backoff.constant, ValueError, **FAST)
    async def push_async(push: Callable[[], int]) -> int:
        await asyncio.sleep(0)
        return push()

    assert asyncio.iscoroutinefunction(push_async)
    found = await asyncio.gather(push_async(third_time()), push_async(third_time()))
    assert list(found) == [3, 3]
    assert [attempts for _, attempts in recorded.groups()] == [THREE, THREE]


async def test_on_predicate(recorded: Adapted) -> None:
    """E3: a try whose result the predicate takes for a failure has failed, the last one too."""
    results = iter([0, 0, 7, 0, 0, 0])

    @backoff.on_predicate(backoff.constant, max_tries=3, **FAST)
    def poll() -> int:
        return next(results)

    @backoff.on_predicate(backoff.constant, max_tries=3, **FAST)
    async def poll_async() -> int:
        return next(results)

    assert poll() == 7
    assert await poll_async() == 0
    rejected = [f"{number} failed (result_rejected)" for number in (1, 2, 3)]
    assert [attempts for _, attempts in recorded.groups()] == [
        [*rejected[:2], "3 completed"],
        rejected,
    ]


def test_exceptions_and_handlers_are_the_applications(recorded: Adapted) -> None:
    """Issue 8: handlers get what they got before, errors pass as they were raised."""
    seen: list[Any] = []
    error = KeyError("x")

    def push() -> None:
        raise error

    decorated = backoff.on_exception(
        backoff.constant,
        KeyError,
        max_tries=2,
        on_backoff=seen.append,
        on_giveup=seen.append,
        **FAST,
    )(push)
    with pytest.raises(KeyError) as raised:
        decorated()
    assert raised.value is error
    assert [details["target"] for details in seen] == [push, push]
    assert [details["tries"] for details in seen] == [1, 2]
    unlisted = backoff.on_exception(backoff.constant, ValueError, **FAST)(push)
    with pytest.raises(KeyError):
        unlisted()
    assert [attempts for _, attempts in recorded.groups()] == [
        ["1 failed (KeyError)", "2 failed (KeyError)"],
        ["1 failed (KeyError)"],
    ]


def test_switched_off_it_is_gone() -> None:
    """Issue 8: what was decorated meanwhile goes on without being recorded."""
    with adapted(BackoffInstrumentor()) as found:
        push = backoff.on_exception(backoff.constant, ValueError, **FAST)(third_time())
    assert push() == 3
    assert len(found.spans) == 0


def test_a_fault_inside_reaches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: whatever raises in recording, the application's results stand."""

    def broken() -> None:
        raise RuntimeError

    with adapted(BackoffInstrumentor()) as found:
        monkeypatch.setattr(recording, "client", broken)
        push = backoff.on_exception(backoff.constant, ValueError, **FAST)(third_time())
        assert push() == 3
    assert len(found.spans) == 0
