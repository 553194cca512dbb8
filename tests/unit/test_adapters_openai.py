"""OpenAI's own loop, recorded as it happens; the same tests run against its oldest release."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import openai
import pytest
import tenacity

from flowmark_otel.adapters.openai import OpenAIInstrumentor
from flowmark_otel.adapters.tenacity import TenacityInstrumentor
from tests.support.adapting import adapted
from tests.support.replying import Reply, replying
from tests.support.sdks import KEY, SDKTests

_CHOICE = {"index": 0, "finish_reason": "stop", "logprobs": None}
_ANSWER = {"id": "c1", "created": 1, "model": "a-model", "object": "chat.completion"}
_CHUNK = {**_ANSWER, "object": "chat.completion.chunk"}


class TestOpenAI(SDKTests):
    """``OpenAI`` and ``AsyncOpenAI``."""

    sdk: ClassVar[Any] = openai
    adapter = OpenAIInstrumentor
    name = "openai.chat.completions.create"
    answer: ClassVar[Reply] = Reply(
        200,
        body=json.dumps(
            {
                **_ANSWER,
                "choices": [{**_CHOICE, "message": {"role": "assistant", "content": "hello"}}],
            }
        ).encode(),
    )
    stream: ClassVar[Reply] = Reply(
        200,
        {"Content-Type": "text/event-stream"},
        f"data: {json.dumps({**_CHUNK, 'choices': []})}\n\ndata: [DONE]\n\n".encode(),
    )

    def client(self, way: str, url: str, **options: Any) -> Any:
        """A client of the SDK."""
        kind = openai.OpenAI if way == "sync" else openai.AsyncOpenAI
        return kind(api_key=KEY, base_url=f"{url}/v1", **options)

    def create(self, client: Any, **options: Any) -> Any:
        """Ask for a chat completion."""
        messages = [{"role": "user", "content": "a prompt"}]
        return client.chat.completions.create(model="a-model", messages=messages, **options)

    def text(self, found: Any) -> str:
        """What was answered."""
        return str(found.choices[0].message.content)

    def test_azure(self) -> None:
        """E3: the clients for Azure build requests in their own way, and are recorded alike."""
        with self.recorded(503) as (found, server):
            client = openai.AzureOpenAI(
                api_key=KEY, api_version="1", azure_endpoint=server.url, max_retries=1
            )
            assert self.text(self.create(client)) == "hello"
        assert found.groups() == [(self.name, ["1 failed (503)", "2 completed"])]

    def test_pages(self) -> None:
        """Issue 8: the first page is asked for by the method, the next by its path."""
        page = {"object": "list", "data": [{"id": "f1"}], "has_more": True}
        with self.recorded(Reply(200, body=json.dumps(page).encode())) as (found, server):
            first = self.client("sync", server.url).files.list()
            first.get_next_page()
        assert [name for name, _ in found.groups()] == ["openai.files.list", "openai GET /files"]

    def test_tenacity_around_it(self) -> None:
        """Issue 8: two policies are two operations: each try of the outer one holds a group."""
        with (
            adapted(TenacityInstrumentor(), OpenAIInstrumentor()) as found,
            replying(503, 503, 503, last=self.answer) as server,
        ):
            retry = tenacity.retry(stop=tenacity.stop_after_attempt(2))
            assert retry(self.ask)("sync", server.url, 1) == "hello"
        outer, *inner = [attempts for _, attempts in found.groups()]
        assert outer == ["1 failed (openai.InternalServerError)", "2 completed"]
        assert inner == [["1 failed (503)", "2 failed (503)"], ["1 failed (503)", "2 completed"]]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_answer_that_is_none(way: str) -> None:
    """E3: an answer that the SDK cannot read fails the try it is of, by the SDK's error."""
    case = TestOpenAI()
    with case.recorded(Reply(200, body=b"{")) as (found, server), pytest.raises(ValueError):  # noqa: PT011 - JSON's
        case.ask(way, server.url)
    assert found.groups() == [(case.name, ["1 failed (json.decoder.JSONDecodeError)"])]
