"""LangChain: ``with_retry`` runs Tenacity's loop, whose adapter records; here tries get their name.

Nothing is recorded here, so nothing twice.
"""

from __future__ import annotations

import functools
from typing import Any

from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.recording import failed_inside
from flowmark_otel.adapters.tenacity import NAME


class LangChainInstrumentor(Adapter):
    """Names the tries of ``Runnable.with_retry`` by the runnable that is tried."""

    requirement = "langchain-core >= 0.3.0"
    module = "langchain_core.runnables.retry"

    def patch(self, patches: Patches) -> None:
        """Wrap what makes the loop, which knows the runnable."""
        from langchain_core.runnables import retry  # noqa: PLC0415 - only where it is there

        for name in ("_sync_retrying", "_async_retrying"):
            patches.wrap(retry.RunnableRetry, name, _named)


def _named(original: Any) -> Any:
    @functools.wraps(original)
    def retrying(runnable: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(runnable, *args, **kwargs)
        try:
            setattr(made, NAME, f"langchain {runnable.bound.get_name()}")
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
        return made

    return retrying
