"""OpenAI's SDK: requests of its clients, sync and async, streamed or not."""

from __future__ import annotations

from flowmark_otel.adapters.stainless import StainlessAdapter


class OpenAIInstrumentor(StainlessAdapter):
    """Records each try of a request of ``OpenAI``, ``AsyncOpenAI`` and those for Azure."""

    requirement = "openai >= 1.76.0"
    module = "openai"
    package = "openai"
