"""stamina: it retries by Tenacity's loop, whose adapter records; here its tries get their name.

Nothing is recorded here, so nothing twice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.recording import failed_inside
from flowmark_otel.adapters.tenacity import NAME

_PLACEHOLDERS: Final = frozenset(("<context block>", "<unknown>"))


class StaminaInstrumentor(Adapter):
    """Names the tries of ``@stamina.retry`` by the decorated function.

    Blocks of ``stamina.retry_context`` and callers are named by the function that they stand in.
    """

    requirement = "stamina >= 23.1.0"
    module = "stamina"

    def patch(self, patches: Patches) -> None:
        """Wrap the beginnings of stamina's loop, which knows the name."""
        from stamina import _core  # noqa: PLC0415 - only where it is there

        loop = _core._RetryContextIterator  # noqa: SLF001 - nothing public knows the name
        patches.wrap(loop, "__iter__", _iter)
        patches.wrap(loop, "__aiter__", _aiter)


def _iter(original: Any) -> Any:
    @functools.wraps(original)
    def begun(loop: Any) -> Iterator[Any]:
        for attempt in original(loop):
            _name(loop, attempt)
            yield attempt

    return begun


def _aiter(original: Any) -> Any:
    @functools.wraps(original)
    def begun(loop: Any) -> Any:
        found = original(loop)
        _name(loop, None, getattr(loop, "_t_a_retrying", found))
        return found

    return begun


def _name(loop: Any, attempt: Any, retrying: Any = None) -> None:
    """Write the name of a loop where the adapter for Tenacity looks for it."""
    try:
        if loop._name in _PLACEHOLDERS:  # noqa: SLF001 - as above
            return
        if attempt is not None:  # newer releases wrap Tenacity's
            retrying = getattr(attempt, "_t_attempt", attempt).retry_state.retry_object
        setattr(retrying, NAME, loop._name)  # noqa: SLF001 - as above
    except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
        failed_inside(error)
