"""google-api-core: its ``Retry``, ``AsyncRetry`` and ``StreamingRetry``, of whatever client."""

from __future__ import annotations

import functools
import sys
from collections.abc import Generator
from itertools import count
from typing import Any, Final

from opentelemetry import context as otel

from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.naming import function_name, joined_name
from flowmark_otel.adapters.recording import Call, Try, failed_inside, is_suppressed_now

_POLLING: Final = "google.api_core.future."
_MODULES: Final = (
    ("google.api_core.retry.retry_unary", "retry_target"),
    ("google.api_core.retry.retry_unary_async", "retry_target"),
    ("google.api_core.retry.retry_streaming", "retry_target_stream"),
    ("google.api_core.retry", "retry_target"),
    ("google.api_core.retry", "retry_target_async"),
    ("google.api_core.retry", "retry_target_stream"),
    ("google.api_core.retry_async", "retry_target"),
)
"""Where the loops are looked up: by the decorators, and by who calls one itself."""


class GoogleApiCoreInstrumentor(Adapter):
    """Records each try of the loops; their policy is a time, so there is no limit.

    A try of a stream ends where the stream does, and is current only while it is opened. Polling
    for a long operation is no retrying: what is asked again is not recorded.
    """

    requirement = "google-api-core >= 2.17.0"
    module = "google.api_core.retry"

    def patch(self, patches: Patches) -> None:
        """Wrap the loops, wherever they are looked up."""
        from google.api_core import retry, retry_async  # noqa: F401, PLC0415 - only where there

        for module, name in _MODULES:
            wrapped = _looping_async if "async" in f"{module}.{name}" else _looping
            if name.endswith("stream"):
                wrapped = _streaming
            patches.wrap(sys.modules[module], name, wrapped)


class _Loop:
    """One run of a loop: counts its tries."""

    __slots__ = ("_call", "_numbers")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._numbers = count(1)

    def start(self) -> Try | None:
        """Start the next try."""
        return self._call.start(next(self._numbers))


def _loop(target: Any) -> _Loop | None:
    try:
        if is_suppressed_now():
            return None
        name = _name(target)
        return None if name.startswith(_POLLING) else _Loop(Call(name))
    except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
        failed_inside(error)
        return None


def _name(target: Any) -> str:
    """The method of a call of gRPC, ``package.Service/Method``; else the function."""
    found = target
    while found is not None:
        method = getattr(found, "_method", None)
        if isinstance(method, bytes):
            method = method.decode()
        if isinstance(method, str):
            return joined_name("", method.lstrip("/"))
        found = getattr(found, "func", None) or getattr(found, "__wrapped__", None)
    return function_name(target)


def _looping(original: Any) -> Any:
    @functools.wraps(original)
    def looping(target: Any, *args: Any, **kwargs: Any) -> Any:
        loop = _loop(target)
        if loop is None:
            return original(target, *args, **kwargs)

        def tried() -> Any:
            started = loop.start()
            if started is None:
                return target()
            with started:
                return target()

        return original(tried, *args, **kwargs)

    return looping


def _looping_async(original: Any) -> Any:
    @functools.wraps(original)
    async def looping(target: Any, *args: Any, **kwargs: Any) -> Any:
        loop = _loop(target)
        if loop is None:
            return await original(target, *args, **kwargs)

        async def tried() -> Any:
            started = loop.start()
            if started is None:
                return await target()
            with started:
                return await target()

        return await original(tried, *args, **kwargs)

    return looping


def _streaming(original: Any) -> Any:
    @functools.wraps(original)
    def looping(target: Any, *args: Any, **kwargs: Any) -> Any:
        loop = _loop(target)
        if loop is None:
            return original(target, *args, **kwargs)

        def tried(*given: Any, **named: Any) -> Any:
            before = otel.get_current()
            started = loop.start()
            if started is None:
                return target(*given, **named)
            try:
                stream = target(*given, **named)
            except BaseException as error:
                started.end(error)
                raise
            otel.attach(before)  # between items the caller's code runs, which is not in the try
            return _followed(stream, started)

        return original(tried, *args, **kwargs)

    return looping


def _followed(stream: Any, started: Try) -> Generator[Any, Any, Any]:
    """The items of a stream; its end is the try's."""
    with started:
        return (yield from stream)
