"""Anthropic's own loop, recorded as it happens; the same tests run against its oldest release."""

from __future__ import annotations

import inspect
import json
from typing import Any, ClassVar

import anthropic
import pytest

from flowmark_otel import names
from flowmark_otel.adapters.anthropic import AnthropicInstrumentor
from tests.support.adapting import adapted
from tests.support.replying import Reply, replying
from tests.support.sdks import KEY, WAYS, SDKTests

_MESSAGE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "a-model",
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
    "content": [{"type": "text", "text": "hello"}],
}
_EVENTS = ({"type": "message_start", "message": _MESSAGE}, {"type": "message_stop"})


class TestAnthropic(SDKTests):
    """``Anthropic`` and ``AsyncAnthropic``."""

    sdk: ClassVar[Any] = anthropic
    adapter = AnthropicInstrumentor
    name = "anthropic.messages.create"
    answer: ClassVar[Reply] = Reply(200, body=json.dumps(_MESSAGE).encode())
    stream: ClassVar[Reply] = Reply(
        200,
        {"Content-Type": "text/event-stream"},
        "".join(
            f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in _EVENTS
        ).encode(),
    )

    def client(self, way: str, url: str, **options: Any) -> Any:
        """A client of the SDK."""
        kind = anthropic.Anthropic if way == "sync" else anthropic.AsyncAnthropic
        return kind(api_key=KEY, base_url=url, **options)

    def create(self, client: Any, **options: Any) -> Any:
        """Ask for a message."""
        messages = [{"role": "user", "content": "a prompt"}]
        return client.messages.create(model="a-model", max_tokens=9, messages=messages, **options)

    def text(self, found: Any) -> str:
        """What was answered."""
        return str(found.content[0].text)

    def test_the_helper_for_streams(self) -> None:
        """Issue 8: it asks when its block begins, outside of the method that made it."""
        with self.recorded(503, self.stream) as (found, server):
            made = self.client("sync", server.url).messages
            messages = [{"role": "user", "content": "a prompt"}]
            with made.stream(model="a-model", max_tokens=9, messages=messages) as events:
                assert events.get_final_message().id == "m1"
        [(operation, attempts)] = found.groups()
        assert operation in {self.name, "anthropic POST /v1/messages"}
        assert attempts == ["1 failed (503)", "2 completed"]

    @WAYS
    def test_beside_the_spans_of_the_sdk(self, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Issue 8, item 4: its span of all sends counts them, and is none of them."""
        if "open_telemetry" not in inspect.signature(anthropic.Anthropic.__init__).parameters:
            with self.recorded(503) as (found, server):  # older releases have no spans
                self.ask(way, server.url)
            assert len(found.spans) == 2
            return
        monkeypatch.setenv("FLOWMARK_SIGNALS", "safe,azure_core,hatchet,gcp_pubsub")
        with adapted(AnthropicInstrumentor()) as found, replying(503, last=self.answer) as server:
            traced = {"tracer_provider": found.provider}
            assert self.ask(way, server.url, open_telemetry=traced) == "hello"
        assert found.groups() == [(self.name, ["1 failed (503)", "2 completed"])]
        assert found.sent() == found.exported()
        assert len(found.spans) == 3
        [run] = found.backend.runs()
        [call] = [
            span for span in found.spans if names.ATTEMPT_NUMBER not in (span.attributes or {})
        ]
        assert dict(call.attributes or {})["http.request.resend_count"] == 1
        assert call.context is not None
        assert found.traces == [call.context.trace_id] * 3
        assert run.run_id == format(call.context.trace_id, "032x")
