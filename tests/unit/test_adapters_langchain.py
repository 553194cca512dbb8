"""LangChain's ``with_retry``, recorded by Tenacity's adapter once; also with its oldest release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.retry import RunnableRetry

from flowmark_otel import names
from flowmark_otel.adapters.langchain import LangChainInstrumentor
from flowmark_otel.adapters.tenacity import TenacityInstrumentor
from tests.support.adapting import Adapted, adapted

THREE = ["1 failed (ValueError)", "2 failed (ValueError)", "3 completed"]
FAST: dict[str, Any] = {"wait_exponential_jitter": False, "stop_after_attempt": 3}


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """Both adapters on, as under ``opentelemetry-instrument``."""
    with adapted(TenacityInstrumentor(), LangChainInstrumentor()) as found:
        yield found


def third_time() -> Callable[[str], str]:
    """A function that fails twice with a message nobody may see."""
    calls: list[int] = []

    def push(value: str) -> str:
        calls.append(1)
        if len(calls) < 3:
            msg = "secret"
            raise ValueError(msg)
        return value

    return push


def test_what_is_invoked_is_recorded_once(recorded: Adapted) -> None:
    """E3, issue 8: three tries are three attempts of one group, named by the runnable."""
    chain = RunnableLambda(third_time()).with_retry(**FAST)
    assert chain.invoke("private") == "private"
    assert recorded.groups() == [("langchain push", THREE)]
    assert {dict(span.attributes or {})[names.ATTEMPT_LIMIT] for span in recorded.spans} == {3}
    assert len(recorded.spans) == 3
    for span in recorded.spans:
        assert "secret" not in span.to_json()
        assert "private" not in span.to_json()


async def test_what_is_awaited(recorded: Adapted) -> None:
    """E3: the same where it is awaited, within a chain."""
    first = RunnableLambda(lambda value: value, name="first")
    push = third_time()

    async def push_async(value: str) -> str:
        return push(value)

    chain = first | RunnableLambda(push_async).with_retry(**FAST)
    assert await chain.ainvoke("private") == "private"
    assert recorded.groups() == [("langchain push_async", THREE)]


def test_batches(recorded: Adapted) -> None:
    """E3: a try of a batch is one of all its inputs, and failed where one of them did."""
    chain = RunnableLambda(third_time()).with_retry(**FAST)
    assert chain.batch(["a", "b"], config={"max_concurrency": 1}) == ["a", "b"]
    assert recorded.groups() == [("langchain push", ["1 failed (ValueError)", "2 completed"])]


def test_the_last_error_is_the_applications(recorded: Adapted) -> None:
    """Issue 8: what is raised is raised as without the adapter."""
    error = ValueError("x")

    def push(_: str) -> str:
        raise error

    with pytest.raises(ValueError, match="x") as raised:
        RunnableLambda(push).with_retry(**FAST).invoke("private")
    assert raised.value is error
    [(_, attempts)] = recorded.groups()
    assert attempts == [f"{number} failed (ValueError)" for number in (1, 2, 3)]


def test_a_name_that_cannot_be_had(recorded: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: it is recorded under the function that the loop stands in, and reported."""

    def fail(*_: object, **__: object) -> str:
        raise RuntimeError

    chain: Any = RunnableLambda(third_time()).with_retry(**FAST)
    with monkeypatch.context() as patched:
        patched.setattr(type(chain.bound), "get_name", fail)
        made = chain._sync_retrying()
    assert made.stop.max_attempt_number == 3
    recorded.backend.runs()
    assert {each.code for each in recorded.diagnostics} == {names.DIAGNOSTIC_INTERNAL}


def test_switched_off_it_is_gone() -> None:
    """Issue 8: uninstrument puts LangChain's own methods back."""
    own = vars(RunnableRetry)["_sync_retrying"]
    with adapted(LangChainInstrumentor()):
        assert vars(RunnableRetry)["_sync_retrying"] is not own
    assert vars(RunnableRetry)["_sync_retrying"] is own
