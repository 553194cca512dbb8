"""What httpx tries again, to connect, recorded as it happens; also with its oldest release."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import permutations
from typing import Any

import httpcore
import httpx
import pytest
from opentelemetry import context as otel
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.instrumentation.utils import suppress_instrumentation

from flowmark_otel import names
from flowmark_otel.adapters import httpx as ours, operation_name
from flowmark_otel.adapters.httpx import HTTPXInstrumentor
from tests.support.adapting import Adapted, adapted
from tests.support.replying import closed_port, replying

NAME = "connect 127.0.0.1"
REFUSED = "failed (httpcore.ConnectError)"

Ask = Callable[..., int]


def by_client(url: str, retries: int, trace: Any = None) -> int:
    """A request of a client."""
    with httpx.Client(transport=httpx.HTTPTransport(retries=retries)) as client:
        extensions = {} if trace is None else {"trace": trace}
        return client.get(f"{url}/a?token=secret", extensions=extensions).status_code


def by_async_client(url: str, retries: int, trace: Any = None) -> int:
    """The same, awaited."""

    async def told(name: str, info: Any) -> None:
        trace(name, info)

    async def ask() -> int:
        transport = httpx.AsyncHTTPTransport(retries=retries)
        async with httpx.AsyncClient(transport=transport) as client:
            extensions = {} if trace is None else {"trace": told}
            found = await client.get(f"{url}/a?token=secret", extensions=extensions)
            return found.status_code

    return asyncio.run(ask())


WAYS = pytest.mark.parametrize("ask", [by_client, by_async_client])


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """The adapter on."""
    with adapted(HTTPXInstrumentor()) as found:
        yield found


@WAYS
def test_a_server_that_comes_up(recorded: Adapted, ask: Ask) -> None:
    """E3: each try to connect is an attempt; once connected, an answer is never tried again."""
    port = closed_port()
    with ExitStack() as stack:

        def told(name: str, _: Any) -> None:
            if name == "connection.retry.started":
                stack.enter_context(replying(503, port=port))

        assert ask(f"http://127.0.0.1:{port}", 2, told) == 503
    assert recorded.groups() == [(NAME, [f"1 {REFUSED}", "2 completed"])]
    assert {span.attributes[names.ATTEMPT_LIMIT] for span in recorded.spans} == {3}  # type: ignore[index]
    assert recorded.sent() == recorded.exported()
    assert all("secret" not in span.to_json() for span in recorded.spans)


@WAYS
def test_a_server_that_stays_away(recorded: Adapted, ask: Ask) -> None:
    """E3: the last try failed too; what is raised is the library's."""
    before = otel.get_current()
    with pytest.raises(httpx.ConnectError) as raised, operation_name("reach the CRM"):
        ask(f"http://127.0.0.1:{closed_port()}", 1)
    assert otel.get_current() == before
    assert type(raised.value.__cause__) is httpcore.ConnectError
    assert recorded.groups() == [("reach the CRM", [f"1 {REFUSED}", f"2 {REFUSED}"])]


@WAYS
def test_tls_is_part_of_connecting(recorded: Adapted, ask: Ask) -> None:
    """E3: a server that speaks no TLS has been reached, and the try failed."""
    connects: list[str] = []

    def told(name: str, _: Any) -> None:
        connects.extend([name] * (name == "connection.connect_tcp.complete"))

    with replying() as server, pytest.raises((httpx.ConnectError, ssl.SSLError)):
        ask(server.url.replace("http:", "https:"), 1, told)
    [(operation, attempts)] = recorded.groups()
    assert operation == NAME
    assert connects  # 1.0.0 does not try this again where it is awaited
    assert [each.split()[:2] for each in attempts] == [
        [str(number), "failed"] for number, _ in enumerate(connects, 1)
    ]


def test_a_connection_that_is_used_again(recorded: Adapted) -> None:
    """E3: what is counted are connections, not requests."""
    with replying() as server, httpx.Client(transport=httpx.HTTPTransport(retries=1)) as client:
        client.get(server.url)
        client.get(server.url)
    assert recorded.groups() == [(NAME, ["1 completed"])]


@WAYS
def test_transports_that_try_once(recorded: Adapted, ask: Ask) -> None:
    """E3: where nothing would be tried again nothing is recorded; nor where that is suppressed."""
    with replying() as server:
        ask(server.url, 0)
        with suppress_instrumentation():
            ask(server.url, 1)
    assert recorded.spans == ()


@WAYS
@pytest.mark.parametrize("order", list(permutations(range(2))), ids=str)
def test_beside_the_instrumentation_there_is(
    order: tuple[int, ...], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 8, item 4: one try is counted once, whoever was there first and whatever is read."""
    monkeypatch.setenv("FLOWMARK_SIGNALS", "safe,azure_core,hatchet,gcp_pubsub")

    def resent(span: Any, *_: Any) -> None:
        span.set_attribute("http.request.resend_count", 2)

    async def resent_async(span: Any, *_: Any) -> None:
        resent(span)

    with adapted() as found, ExitStack() as stack:
        own, stock = HTTPXInstrumentor(), HTTPXClientInstrumentor()
        for each in order:
            if each:
                own.instrument()
                stack.callback(own.uninstrument)
            else:
                stock.instrument(
                    tracer_provider=found.provider,
                    request_hook=resent,
                    async_request_hook=resent_async,
                )
                stack.callback(stock.uninstrument)
        with pytest.raises(httpx.ConnectError):
            ask(f"http://127.0.0.1:{closed_port()}", 1)
    assert found.groups() == [(NAME, [f"1 {REFUSED}", f"2 {REFUSED}"])]
    assert found.sent() == found.exported()
    assert [span.name for span in found.spans] == [NAME, NAME, "GET"]


async def test_a_task_that_is_cancelled(recorded: Adapted) -> None:
    """A11: the try that it was in has failed; the loop is left."""
    connecting = asyncio.Event()

    async def told(name: str, _: Any) -> None:
        if name == "connection.connect_tcp.started":
            connecting.set()
            await asyncio.Event().wait()

    async def ask() -> None:
        transport = httpx.AsyncHTTPTransport(retries=1)
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get("http://127.0.0.1:9", extensions={"trace": told})

    task = asyncio.create_task(ask())
    await connecting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recorded.groups() == [(NAME, ["1 failed (asyncio.exceptions.CancelledError)"])]


def test_switched_off_it_is_gone() -> None:
    """Issue 8: uninstrument puts httpcore's own back."""
    places = [
        (httpcore._sync.connection, "Trace"),
        (httpcore._async.connection, "Trace"),
        (httpcore.HTTPConnection, "_connect"),
        (httpcore.AsyncHTTPConnection, "_connect"),
    ]
    own = [vars(owner)[name] for owner, name in places]
    with adapted(HTTPXInstrumentor()):
        changed = [vars(owner)[name] for owner, name in places]
        assert all(new is not old for new, old in zip(changed, own, strict=True))
        assert inspect.iscoroutinefunction(changed[-1])
    assert [vars(owner)[name] for owner, name in places] == own


@WAYS
def test_a_fault_inside_reaches_nobody(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: whatever raises in recording, answers and errors stand."""

    def fail(*_: object, **__: object) -> None:
        msg = "broken"
        raise RuntimeError(msg)

    monkeypatch.setattr(ours, "connection_name", fail)
    with adapted(HTTPXInstrumentor()) as found, replying() as server:
        assert ask(server.url, 1) == 200
        with pytest.raises(httpx.ConnectError):
            ask(f"http://127.0.0.1:{closed_port()}", 1)
        assert found.groups() == []
        assert {each.code for each in found.diagnostics} == {names.DIAGNOSTIC_INTERNAL}
