"""aiohttp-retry's own loop, recorded as it happens; also with its oldest release."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp_retry import ExponentialRetry, RetryClient
from aiohttp_retry.client import _RequestContext
from opentelemetry import context as otel
from opentelemetry.instrumentation.utils import suppress_instrumentation

from flowmark_otel import names
from flowmark_otel.adapters import aiohttp_retry as ours, operation_name
from flowmark_otel.adapters.aiohttp_retry import AiohttpRetryInstrumentor
from tests.support.adapting import Adapted, adapted
from tests.support.replying import Reply, closed_port, replying

NAME = "GET 127.0.0.1"


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """The adapter on."""
    with adapted(AiohttpRetryInstrumentor()) as found:
        yield found


def often(attempts: int = 4, **options: Any) -> ExponentialRetry:
    """Options that wait for nothing."""
    options.setdefault("exceptions", {aiohttp.ClientError})
    return ExponentialRetry(attempts, start_timeout=0, **options)


async def ask(url: str, options: ExponentialRetry, **given: Any) -> int:
    """The status of one answer."""
    async with (
        RetryClient(retry_options=options, **given) as client,
        client.get(f"{url}/a?token=secret") as response,
    ):
        return response.status


async def test_answers_that_are_tried_again(recorded: Adapted) -> None:
    """E3: each try is an attempt; an answer that the options reject failed by its status."""
    before = otel.get_current()
    with replying(503, Reply(429, {"X-Private": "secret"}, b"secret")) as server:
        assert await ask(server.url, often(statuses={429})) == 200
    assert otel.get_current() == before
    assert recorded.groups() == [(NAME, ["1 failed (503)", "2 failed (429)", "3 completed"])]
    assert {dict(span.attributes or {})[names.ATTEMPT_LIMIT] for span in recorded.spans} == {4}
    assert recorded.sent() == recorded.exported()
    assert all("secret" not in span.to_json() for span in recorded.spans)


@pytest.mark.parametrize("raised", [True, False])
async def test_the_last_answer(recorded: Adapted, raised: bool) -> None:  # noqa: FBT001
    """E3: the last try failed too, whether its answer is handed over or raised."""
    with replying(503, 503, 404) as server:
        if raised:
            with pytest.raises(aiohttp.ClientResponseError):
                await ask(server.url, often(2), raise_for_status=True)
        else:
            assert await ask(server.url, often(2)) == 503
    first, second = recorded.groups()[0][1]
    assert first == "1 failed (503)"
    error = "aiohttp.client_exceptions.ClientResponseError" if raised else "503"
    assert second == f"2 failed ({error})"


async def test_answers_that_nobody_tries_again(recorded: Adapted) -> None:
    """E3: the options say what a failure is, not the adapter."""
    with replying(404, 500, 500) as server:
        assert await ask(server.url, often()) == 404
        assert await ask(server.url, often(retry_all_server_errors=False)) == 500
        assert await ask(server.url, often(methods={"PUT"})) == 500
    assert recorded.groups() == [(NAME, ["1 completed"])] * 3


async def test_answers_that_are_raised_and_tried_again(recorded: Adapted) -> None:
    """E3: a status that raises is tried again where its exception is."""
    with replying(404) as server:
        assert await ask(server.url, often(), raise_for_status=True) == 200
    assert recorded.groups() == [(NAME, ["1 failed (404)", "2 completed"])]


async def test_answers_that_the_application_judges(recorded: Adapted) -> None:
    """E3: its verdict counts where the library asks for it; that is not after the last try."""

    async def judge(response: aiohttp.ClientResponse) -> bool:
        if response.status == 202:
            raise aiohttp.ClientError
        return response.status == 200

    with replying(201, 202, 200, 201, 201) as server:
        assert await ask(server.url, often(evaluate_response_callback=judge)) == 200
        assert await ask(server.url, often(2, evaluate_response_callback=judge)) == 201
    assert recorded.groups() == [
        (
            NAME,
            ["1 failed (201)", "2 failed (aiohttp.client_exceptions.ClientError)", "3 completed"],
        ),
        (NAME, ["1 failed (201)", "2 completed"]),
    ]


async def test_connections(recorded: Adapted) -> None:
    """E3: a try failed by the exception; what is raised is aiohttp's."""
    with replying(0, 0) as server:  # aiohttp itself sends once more; that is of the same try
        assert await ask(server.url, often()) == 200
    with pytest.raises(aiohttp.ClientConnectorError), operation_name("fetch"):
        await ask(f"http://127.0.0.1:{closed_port()}", often(2))
    refused = "failed (aiohttp.client_exceptions.ClientConnectorError)"
    assert recorded.groups() == [
        (NAME, ["1 failed (aiohttp.client_exceptions.ServerDisconnectedError)", "2 completed"]),
        ("fetch", [f"1 {refused}", f"2 {refused}"]),
    ]


async def test_requests_at_once(recorded: Adapted) -> None:
    """A4: each has a group of its own; one that tries once, or is suppressed, has none."""
    with replying(503) as server:
        await asyncio.gather(*(ask(server.url, often()) for _ in range(3)))
        await ask(server.url, often(1))
        with suppress_instrumentation():
            await ask(server.url, often())
    lines = sorted(line for _, attempts in recorded.groups() for line in attempts)
    assert lines == ["1 completed", "1 completed", "1 failed (503)", "2 completed"]


async def test_names(recorded: Adapted) -> None:
    """Issue 8: method and host of the first address; an address may be in the session."""
    with replying() as server:
        async with aiohttp.ClientSession(server.url) as session:
            client = RetryClient(client_session=session, retry_options=often())
            async with client.post("/a/b?c=d"):
                pass
        async with RetryClient(retry_options=often()) as client:
            urls = [server.url.replace("127.0.0.1", "localhost"), server.url]
            async with client.request("BREW", urls[0]) as brewed:
                assert brewed.status == 501
    assert [name for name, _ in recorded.groups()] == ["POST 127.0.0.1", "HTTP localhost"]


async def test_a_task_that_is_cancelled(recorded: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A11: the try that it was in has failed, by the cancellation."""
    sending = asyncio.Event()

    async def send(*_: Any, **__: Any) -> None:
        sending.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(aiohttp.ClientSession, "_request", send)
    task = asyncio.create_task(ask("http://127.0.0.1", often()))
    await sending.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recorded.groups() == [(NAME, ["1 failed (asyncio.exceptions.CancelledError)"])]


async def test_switched_off_it_is_gone() -> None:
    """Issue 8: uninstrument puts the library's own methods back, and requests are as they were."""
    own = dict(vars(_RequestContext))
    with replying(503) as server, adapted(AiohttpRetryInstrumentor()):
        assert vars(_RequestContext)["_do_request"] is not own["_do_request"]
        async with RetryClient(retry_options=often()) as client:
            context = client.get(server.url)
            send = context._request_func
            async with context:
                assert context._request_func is send
    assert dict(vars(_RequestContext)) == own


@pytest.mark.parametrize("broken", ["request_name", "_rejects", "str"])
async def test_a_fault_inside_reaches_nobody(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: whatever raises in recording, answers and errors stand."""

    def fail(*_: object, **__: object) -> None:
        msg = "broken"
        raise RuntimeError(msg)

    monkeypatch.setattr(ours, broken, fail, raising=False)
    with adapted(AiohttpRetryInstrumentor()) as found, replying(503) as server:
        assert await ask(server.url, often()) == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(f"http://127.0.0.1:{closed_port()}", often(2))
        found.backend.runs()
        assert {each.code for each in found.diagnostics} == {names.DIAGNOSTIC_INTERNAL}
