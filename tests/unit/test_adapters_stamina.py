"""stamina's own loop, recorded by Tenacity's adapter once; the same tests run with its oldest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stamina

from flowmark_otel.adapters.stamina import StaminaInstrumentor
from flowmark_otel.adapters.tenacity import TenacityInstrumentor
from tests.support.adapting import Adapted, adapted

THREE = ["1 failed (ValueError)", "2 failed (ValueError)", "3 completed"]
FAST: dict[str, Any] = {"wait_initial": 0, "wait_jitter": 0, "wait_max": 0}


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """Both adapters on, as under ``opentelemetry-instrument``."""
    with adapted(TenacityInstrumentor(), StaminaInstrumentor()) as found:
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


def test_a_decorated_function_is_recorded_once(recorded: Adapted) -> None:
    """E3, issue 8: three tries are three attempts of one group, named by the function."""
    push = stamina.retry(on=ValueError, attempts=4, **FAST)(third_time())
    assert push() == 3
    assert recorded.groups() == [(f"{__name__}.third_time.<locals>.push", THREE)]
    assert {dict(span.attributes or {})["flowmark.attempt.limit"] for span in recorded.spans} == {4}
    assert len(recorded.spans) == 3


async def test_a_decorated_coroutine_function(recorded: Adapted) -> None:
    """E3: the same where it is awaited."""
    push = third_time()

    @stamina.retry(on=ValueError, **FAST)
    async def push_async() -> int:
        return push()

    assert await push_async() == 3
    [(operation, attempts)] = recorded.groups()
    assert operation.endswith("test_a_decorated_coroutine_function.<locals>.push_async")
    assert attempts == THREE


async def test_blocks(recorded: Adapted) -> None:
    """E3: blocks are named by the function that they stand in."""
    push = third_time()
    for attempt in stamina.retry_context(on=ValueError, **FAST):
        with attempt:
            push()
    push = third_time()
    async for attempt in stamina.retry_context(on=ValueError, **FAST):
        with attempt:
            push()
    first, second = recorded.groups()
    assert first[1] == second[1] == THREE
    assert first[0].endswith("test_blocks")
    assert second[0].endswith("test_blocks")


def test_what_it_raises_is_the_applications(recorded: Adapted) -> None:
    """Issue 8: the last error is raised as without the adapter."""
    error = ValueError("x")

    @stamina.retry(on=ValueError, attempts=2, **FAST)
    def push() -> None:
        raise error

    with pytest.raises(ValueError, match="x") as raised:
        push()
    assert raised.value is error
    [(_, attempts)] = recorded.groups()
    assert attempts == ["1 failed (ValueError)", "2 failed (ValueError)"]


def test_a_fault_in_naming_reaches_nobody(
    recorded: Adapted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 8: where a name cannot be written, the function runs and is recorded all the same."""
    monkeypatch.setattr("flowmark_otel.adapters.stamina.NAME", 7)  # no name of an attribute
    assert stamina.retry(on=ValueError, **FAST)(third_time())() == 3
    [(_, attempts)] = recorded.groups()
    assert attempts == THREE
