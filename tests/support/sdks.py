"""Requests of OpenAI's and Anthropic's SDKs against a server on loopback, and what all share."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
from opentelemetry import context as otel
from opentelemetry.instrumentation.utils import suppress_instrumentation

from flowmark_otel import names
from flowmark_otel.adapters import operation_name, stainless
from flowmark_otel.adapters.stainless import StainlessAdapter
from tests.support.adapting import Adapted, adapted
from tests.support.replying import Reply, Replying, closed_port, replying

KEY = "sk-secret"
BUSY = Reply(
    429, {"retry-after-ms": "1", "x-private": "secret"}, b'{"error": {"message": "secret"}}'
)
WAYS = pytest.mark.parametrize("way", ["sync", "async"])


class SDKTests(ABC):
    """The tests of an adapter for an SDK; a subclass says which SDK it is."""

    sdk: ClassVar[Any]
    adapter: ClassVar[type[StainlessAdapter]]
    name: ClassVar[str]
    """Of the operation that ``create`` is."""
    answer: ClassVar[Reply]
    stream: ClassVar[Reply]

    @abstractmethod
    def client(self, way: str, url: str, **options: Any) -> Any:
        """A client of the SDK."""

    @abstractmethod
    def create(self, client: Any, **options: Any) -> Any:
        """A call of its best-known method, or its coroutine."""

    @abstractmethod
    def text(self, found: Any) -> str:
        """What was answered."""

    def ask(self, way: str, url: str, retries: int | None = 3, **options: Any) -> str:
        """The answer to one request, of a client that tries so often again."""
        if retries is not None:
            options["max_retries"] = retries
        client = self.client(way, url, **options)
        if way == "sync":
            with client:
                return self.text(self.create(client))

        async def asked() -> str:
            async with client:
                return self.text(await self.create(client))

        return asyncio.run(asked())

    def listen(self, way: str, url: str) -> int:
        """The number of events of one streamed request."""
        client = self.client(way, url)
        if way == "sync":
            with client, self.create(client, stream=True) as events:
                return len(list(events))

        async def listened() -> int:
            async with client, await self.create(client, stream=True) as events:
                return len([each async for each in events])

        return asyncio.run(listened())

    @contextmanager
    def recorded(self, *replies: int | Reply) -> Iterator[tuple[Adapted, Replying]]:
        """The adapter on, and a server that answers."""
        with adapted(self.adapter()) as found, replying(*replies, last=self.answer) as server:
            yield found, server

    @pytest.fixture(autouse=True)
    def _at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No wait between two tries: the SDK's shortest is half a second."""
        base = self.sdk._base_client.BaseClient
        monkeypatch.setattr(base, "_calculate_retry_timeout", lambda *_: 0)

    @WAYS
    def test_answers_that_are_tried_again(self, way: str) -> None:
        """E3: each try is an attempt, its number and limit the SDK's; a failure has its status."""
        with self.recorded(BUSY, 503) as (found, server):
            assert self.ask(way, server.url) == "hello"
            assert len(server.asked) == 3
        assert found.groups() == [(self.name, ["1 failed (429)", "2 failed (503)", "3 completed"])]
        limits = {dict(span.attributes or {})[names.ATTEMPT_LIMIT] for span in found.spans}
        assert limits == {4}
        assert found.sent() == found.exported()

    @WAYS
    def test_the_last_answer(self, way: str) -> None:
        """E3: the last try failed by its status too; what is raised is the SDK's."""
        before = otel.get_current()
        with self.recorded(BUSY, BUSY) as (found, server):
            with pytest.raises(self.sdk.RateLimitError) as raised:
                self.ask(way, server.url, 1)
            assert raised.value.__cause__ is None
        assert otel.get_current() == before
        assert found.groups() == [(self.name, ["1 failed (429)", "2 failed (429)"])]

    @WAYS
    def test_an_answer_that_is_not_tried_again(self, way: str) -> None:
        """E3: what the SDK raises is a failure, tried again or not."""
        with self.recorded(400) as (found, server), pytest.raises(self.sdk.BadRequestError):
            self.ask(way, server.url)
        assert found.groups() == [(self.name, ["1 failed (400)"])]

    @WAYS
    def test_connections_that_are_refused(self, way: str) -> None:
        """E3: each try failed by the error of the HTTP client, the last one too."""
        with self.recorded() as (found, _), pytest.raises(self.sdk.APIConnectionError):
            self.ask(way, f"http://127.0.0.1:{closed_port()}", 1)
        [(_, attempts)] = found.groups()
        assert [each.split(" ", 1)[0] for each in attempts] == ["1", "2"]
        assert {each.rpartition(".")[2] for each in attempts} == {"ConnectError)"}

    @WAYS
    def test_connections_that_break(self, way: str) -> None:
        """E3: a try whose connection was cut is followed by one that completed."""
        with self.recorded(0) as (found, server):
            assert self.ask(way, server.url) == "hello"
        [(_, [first, second])] = found.groups()
        assert first.endswith(".RemoteProtocolError)")
        assert second == "2 completed"

    @WAYS
    def test_streams(self, way: str) -> None:
        """E3: a streamed answer is there when it begins; its events come after the try."""
        with self.recorded(503, self.stream) as (found, server):
            assert self.listen(way, server.url) > 0
        assert found.groups() == [(self.name, ["1 failed (503)", "2 completed"])]

    @WAYS
    def test_clients_that_try_once(self, way: str) -> None:
        """E3: where nothing would be tried again, or nothing is to be recorded, nothing is."""
        with self.recorded() as (found, server):
            self.ask(way, server.url, 0)
            with suppress_instrumentation():
                self.ask(way, server.url)
        assert found.spans == ()

    def test_the_limit_that_the_sdk_comes_with(self) -> None:
        """E3: the default is read where it is, and the options of one call where they are."""
        with self.recorded() as (found, server):
            self.ask("sync", server.url, None)
            client = self.client("sync", server.url)
            self.create(client.with_options(max_retries=6))
        limits = [dict(span.attributes or {})[names.ATTEMPT_LIMIT] for span in found.spans]
        assert limits == [self.sdk.DEFAULT_MAX_RETRIES + 1, 7]

    def test_names(self) -> None:
        """Issue 8: a request that no method of the SDK makes has its path as far as it is words."""
        package = self.adapter.package
        with self.recorded() as (found, server):
            client = self.client("sync", server.url)
            client.get("/things/thing_4711?secret=1", cast_to=object)
            client.get("/v2/x-y", cast_to=object)
            with operation_name("ask"):
                self.create(client)
        assert [name for name, _ in found.groups()] == [
            f"{package} GET /things",
            f"{package} GET /v2",
            "ask",
        ]

    @WAYS
    def test_nothing_of_requests_and_answers(self, way: str) -> None:
        """Issue 8: no key, prompt, header or body is on the spans."""
        with self.recorded(BUSY) as (found, server):
            self.ask(way, server.url)
        assert len(found.spans) == 2
        for span in found.spans:
            text = span.to_json()
            for private in ("secret", "hello", "prompt", "a-model"):
                assert private not in text

    async def test_a_task_that_is_cancelled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A11: the try that it was in has failed, by the cancellation."""
        sending = asyncio.Event()

        async def send(*_: Any, **__: Any) -> None:
            sending.set()
            await asyncio.Event().wait()

        with self.recorded() as (found, server):
            async with self.client("async", server.url) as client:
                monkeypatch.setattr(client._client, "send", send)
                task = asyncio.create_task(self.create(client))
                await sending.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
        cancelled = "1 failed (asyncio.exceptions.CancelledError)"
        assert found.groups() == [(self.name, [cancelled])]

    async def test_requests_at_once(self) -> None:
        """A4: tasks that ask at once have groups of their own."""
        with self.recorded(503, 503) as (found, server):
            async with self.client("async", server.url) as client:
                await asyncio.gather(*(self.create(client) for _ in range(4)))
        lines = sorted(line for _, attempts in found.groups() for line in attempts)
        assert len(found.groups()) == 4
        assert len(lines) == 6
        assert sum("completed" in line for line in lines) == 4

    def test_switched_off_it_is_gone(self) -> None:
        """Issue 8: uninstrument puts the SDK's own methods back."""
        base = self.sdk._base_client
        places = [
            (base.BaseClient, "_build_request"),
            (base.SyncAPIClient, "request"),
            (base.AsyncAPIClient, "_sleep_for_retry"),
        ]
        own = [vars(owner)[name] for owner, name in places]
        with adapted(self.adapter()):
            assert all(vars(owner)[name] is not own for owner, name in places)
        assert [vars(owner)[name] for owner, name in places] == own

    @WAYS
    @pytest.mark.parametrize("broken", ["_words", "Loop", "str"])
    def test_a_fault_inside_reaches_nobody(
        self, way: str, broken: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Issue 8: whatever raises in recording, answers and errors stand."""

        def fail(*_: object, **__: object) -> None:
            msg = "broken"
            raise RuntimeError(msg)

        monkeypatch.setattr(stainless, broken, fail, raising=False)
        with self.recorded(BUSY) as (found, server):
            assert self.ask(way, server.url) == "hello"
            self.client("sync", server.url).get("/things", cast_to=object)
            found.backend.runs()
            assert {each.code for each in found.diagnostics} == {names.DIAGNOSTIC_INTERNAL}
