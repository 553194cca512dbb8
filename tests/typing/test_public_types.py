"""What type checkers see of the recording API (A26).

mypy checks this file in ``make lint``: each ``assert_type`` is a claim, and each ``type: ignore`` a
mistake that has to be found, since an ignore that is not needed is an error. The functions are not
called.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from typing_extensions import TypedDict, assert_type

import flowmark_otel as flowmark

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Imported(TypedDict, total=False):
    """What a run of crm.sync reports."""

    imported: int
    skipped: int


CRM_SYNC = flowmark.WorkflowDefinition("crm.sync", result=Imported)
PUSH = CRM_SYNC.operation("push-to-crm", limit=3, system="crm")


def push(customers: list[str], *, dry_run: bool = False) -> int:
    """A callable with a signature worth keeping."""
    return 0 if dry_run else len(customers)


async def push_async(customers: list[str]) -> int:
    """The same, for asyncio."""
    return len(customers)


def calls(flow: flowmark.Workflow) -> None:
    """A call gives what its function gives, and checks its arguments and options."""
    assert_type(flow.call("push", push, ["Ada"]), int)
    assert_type(flow.call("read", lambda: "text"), str)
    assert_type(flow.call(PUSH, push, ["Ada"], attempt=flowmark.Attempt("g", 1)), int)
    flow.call("push", push, 7)  # type: ignore[arg-type]
    flow.call("push", push, ["Ada"], limit="3")  # type: ignore[arg-type]
    flow.call("push", push, ["Ada"], atempt=None)  # type: ignore[call-arg]
    flow.call("push", push, ["Ada"], map_error=lambda _: flowmark.Failure("CRM_UNAVAILABLE"))
    flow.call("push", push, ["Ada"], map_error=lambda _: "CODE")  # type: ignore[arg-type,return-value]


async def awaited(flow: flowmark.Workflow) -> None:
    """An awaited call gives what its coroutine gives."""
    assert_type(await flow.acall("push", push_async, ["Ada"]), int)
    await flow.acall("push", push_async, 7)  # type: ignore[arg-type]
    await flow.acall("push", push, ["Ada"])  # type: ignore[arg-type]


def decorated(flow: flowmark.Workflow) -> None:
    """A decorator keeps the signature of a function of any kind."""

    @flow.operation("add")
    def add(one: int, other: int = 2) -> int:
        return one + other

    @flow.operation("read")
    def read() -> Iterator[int]:
        yield 1

    @flow.operation("read")
    async def read_async() -> AsyncIterator[int]:
        yield 1

    @flow.operation("load")
    async def load() -> bytes:
        return b""

    assert_type(add(1, other=3), int)
    assert_type(read(), Iterator[int])
    assert_type(read_async(), AsyncIterator[int])
    add("1")  # type: ignore[arg-type]
    checked: Callable[[], object] = load
    del checked


def operations(flow: flowmark.Workflow) -> None:
    """Operations and runs are what their blocks give."""
    with flow as inside, inside.operation("o") as operation:
        assert_type(inside, flowmark.Workflow)
        assert_type(operation, flowmark.Operation)
        operation.fail(code="CODE", retryable=True)
    flow.operation("o", atempt=None)  # type: ignore[arg-type]
    flow.operation("o", attempt=("g", 1))  # type: ignore[arg-type]
    assert_type(flow.ref, flowmark.RunRef)
    flowmark.workflow("w", retry_of=flow)  # type: ignore[arg-type]
    flow.done(outcome="complete", result={"imported": 3, "name": "x"})
    flow.done(result={"at": object()})  # type: ignore[dict-item]


def definitions() -> None:
    """A definition gives its runs the type of their results."""
    flow = CRM_SYNC.start(retry_of=flowmark.RunRef("crm.sync", "r"))
    assert_type(flow, flowmark.Workflow[Imported])
    assert_type(PUSH, flowmark.OperationDefinition)
    flow.done(result={"imported": 3})
    flow.fail(result={"inported": 3})  # type: ignore[arg-type]
    plain = flowmark.WorkflowDefinition("plain")
    plain.start().done(result={"anything": 1})


def the_handle() -> None:
    """The handle says which of its answers may be absent."""
    handle = flowmark.current_attempt()
    assert_type(handle.number, int)
    assert_type(handle.limit, int | None)
    assert_type(handle.remaining(), float)
    assert_type(handle.deadline, int | None)
    assert_type(handle.timeout, int | None)
    assert_type(handle.system, str | None)
    assert_type(handle.series, str | None)
    assert_type(handle.idempotency_key, str | None)
    handle.number = 2  # type: ignore[misc]


async def the_signal(flow: flowmark.Workflow) -> None:
    """The signal reads like an event, and can be awaited; a block of a coroutine can be stopped."""
    signal = flowmark.current_attempt().signal
    assert_type(signal, flowmark.AttemptSignal)
    assert_type(signal.is_set(), bool)
    assert_type(signal.wait(1.5), bool)
    assert_type(await signal, bool)
    assert_type(signal.reason, Literal["timeout", "deadline", "cancelled"] | None)
    signal.wait("1")  # type: ignore[arg-type]
    signal.reason = None  # type: ignore[misc]
    try:
        async with flow.operation("push", timeout=50) as operation:
            assert_type(operation, flowmark.Operation)
    except flowmark.AttemptTimeoutError as error:
        late: TimeoutError = error
        assert_type(error.permanent, bool)
        del late


def plain_spans(span: Span) -> None:
    """Annotations are checked by name and type."""
    found = flowmark.attributes(attempt=flowmark.Attempt("g", 1))
    given: Mapping[str, object] = found
    span.set_attributes(found)
    assert given
    flowmark.annotate(span, retry_of=flowmark.RunRef("w", "r"), result={"n": 1})
    flowmark.annotate(span, attempt=1)  # type: ignore[arg-type]
    flowmark.annotate(span, unknown=1)  # type: ignore[call-arg]


def settings() -> None:
    """Settings are checked by name and type."""
    flowmark.configure(endpoint="http://127.0.0.1:4318", compression="gzip", strict=True)
    flowmark.configure(endpiont="http://127.0.0.1:4318")  # type: ignore[call-arg]
    flowmark.configure(on_diagnostic=lambda diagnostic: print(diagnostic.code))  # noqa: T201


def test_all_public_names_are_importable() -> None:
    """Contract, section 6: all public names come from `flowmark_otel`, and `__all__` lists them."""
    assert sorted(flowmark.__all__) == flowmark.__all__
    assert all(hasattr(flowmark, name) for name in flowmark.__all__)
