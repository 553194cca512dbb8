"""google-api-core's own loops, some around gRPC on loopback; the same with its oldest release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, repeat
from typing import Any, Final

import grpc
import pytest
from opentelemetry import context as otel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the oldest release says of newer interpreters
    from google.api_core import exceptions, gapic_v1, retry, retry_async
    from google.api_core.future import polling

from flowmark_otel.adapters import recording
from flowmark_otel.adapters.google_api_core import GoogleApiCoreInstrumentor
from tests.support.adapting import Adapted, adapted

UNAVAILABLE: Final = "google.api_core.exceptions.ServiceUnavailable"
THREE: Final = [f"1 failed ({UNAVAILABLE})", f"2 failed ({UNAVAILABLE})", "3 completed"]
FAST: Final[dict[str, Any]] = {"initial": 0.001, "maximum": 0.001, "timeout": 20}
HERE: Final = f"{__name__}.third_time.<locals>.push"


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """The adapter on."""
    with adapted(GoogleApiCoreInstrumentor()) as found:
        yield found


def third_time() -> Callable[[], int]:
    """A function that fails twice."""
    calls = count(1)

    def push() -> int:
        number = next(calls)
        if number < 3:
            raise exceptions.ServiceUnavailable(str(number))
        return number

    return push


@pytest.fixture
def rpc() -> Iterator[Any]:
    """A method of a service on loopback that is unavailable twice, as generated clients have it."""
    calls = count(1)

    def answer(body: bytes, context: grpc.ServicerContext) -> bytes:
        if next(calls) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        return body

    class Handlers(grpc.GenericRpcHandler):
        def service(self, _details: grpc.HandlerCallDetails) -> Any:
            return grpc.unary_unary_rpc_method_handler(answer)

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads, handlers=[Handlers()])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with grpc.insecure_channel(address) as channel:
            yield channel.unary_unary("/crm.v1.Batches/Push")
        server.stop(None).wait(20)


def test_retry(recorded: Adapted) -> None:
    """E3: three tries are three attempts of one group, named by the function."""
    before = otel.get_current()
    assert retry.Retry(**FAST)(third_time())() == 3
    assert otel.get_current() == before
    assert recorded.groups() == [(HERE, THREE)]
    assert "flowmark.attempt.limit" not in (recorded.spans[0].attributes or {})


def test_a_client_of_grpc(recorded: Adapted, rpc: Any) -> None:
    """E3: what a generated client tries is named by the method, as gRPC has it."""
    call = gapic_v1.method.wrap_method(rpc, default_retry=retry.Retry(**FAST))
    assert call(b"x", timeout=20) == b"x"
    assert recorded.groups() == [("crm.v1.Batches/Push", THREE)]


async def test_async_retry(recorded: Adapted) -> None:
    """E3: the same where it is awaited."""
    push = third_time()

    async def push_async() -> int:
        return push()

    assert await retry_async.AsyncRetry(**FAST)(push_async)() == 3
    name = f"{__name__}.test_async_retry.<locals>.push_async"
    assert recorded.groups() == [(name, THREE)]


def test_loops_that_are_called(recorded: Adapted) -> None:
    """E3: so where the loop is called itself; errors pass as they were raised."""
    sleeps = repeat(0.0)
    assert retry.retry_target(third_time(), retry.if_transient_error, sleeps, timeout=20) == 3
    error = KeyError()

    def broken() -> None:
        raise error

    with pytest.raises(KeyError) as raised:
        retry.retry_target(broken, retry.if_transient_error, sleeps, timeout=20)
    assert raised.value is error
    assert [attempts for _, attempts in recorded.groups()] == [THREE, ["1 failed (KeyError)"]]


def test_streams(recorded: Adapted) -> None:
    """E3: a stream that broke is a failed try, its next beginning another; the last is closed."""
    push = third_time()

    def items() -> Iterator[int]:
        yield 0
        yield push()
        yield 4

    before = otel.get_current()
    stream = retry.StreamingRetry(**FAST)(items)()
    assert [next(stream), otel.get_current() == before] == [0, True]
    assert list(stream) == [0, 0, 3, 4]
    left = retry.StreamingRetry(**FAST)(items)()
    next(left)
    left.close()
    name = f"{__name__}.test_streams.<locals>.items"
    assert recorded.groups() == [(name, THREE), (name, ["1 completed"])]


def test_polling_is_no_retrying(recorded: Adapted) -> None:
    """Issue 8: an operation that is not done yet has not failed, so nothing is recorded."""
    asked = count(1)

    class Long(polling.PollingFuture):
        def done(self, retry: object = None) -> bool:  # noqa: ARG002 - as it is called
            if next(asked) < 3:
                return False
            self.set_result(7)
            return True

        def cancel(self) -> None:
            """Never asked for."""

        def cancelled(self) -> bool:
            return False

        def running(self) -> bool:
            return True

    fast = polling.DEFAULT_POLLING.with_delay(initial=0.001, maximum=0.001)
    assert Long(polling=fast).result() == 7
    assert recorded.groups() == []


def test_a_fault_inside_reaches_nobody(recorded: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: whatever raises in recording, the application's results stand."""

    def broken() -> None:
        raise RuntimeError

    monkeypatch.setattr(recording, "client", broken)
    assert retry.Retry(**FAST)(third_time())() == 3
    assert list(retry.StreamingRetry(**FAST)(lambda: iter([1]))()) == [1]
    assert len(recorded.spans) == 0


def test_suppressed(recorded: Adapted) -> None:
    """Issue 8: where instrumentation is suppressed nothing is recorded."""
    token = otel.attach(otel.set_value(otel._SUPPRESS_INSTRUMENTATION_KEY, value=True))
    try:
        assert retry.Retry(**FAST)(third_time())() == 3
    finally:
        otel.detach(token)
    assert recorded.groups() == []


def test_switched_off_it_is_gone() -> None:
    """Issue 8: what was decorated meanwhile goes on without being recorded."""
    own = retry.retry_target
    with adapted(GoogleApiCoreInstrumentor()) as found:
        push = retry.Retry(**FAST)(third_time())
        assert retry.retry_target is not own
    assert retry.retry_target is own
    assert push() == 3
    assert len(found.spans) == 0
