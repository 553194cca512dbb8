"""Anthropic's SDK: requests of its clients, sync and async, streamed or not."""

from __future__ import annotations

from flowmark_otel.adapters.stainless import StainlessAdapter


class AnthropicInstrumentor(StainlessAdapter):
    """Records each try of a request of ``Anthropic`` and ``AsyncAnthropic``."""

    requirement = "anthropic >= 0.50.0"
    module = "anthropic"
    package = "anthropic"
