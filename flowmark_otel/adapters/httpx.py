"""httpx: connections of transports with ``retries=``, which httpcore tries again.

httpx never tries a request again, only what comes before it: to connect. That is the operation.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any, ClassVar, Final

from opentelemetry import context as otel

from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.looping import Loop, loop_under, running
from flowmark_otel.adapters.naming import connection_name
from flowmark_otel.adapters.recording import failed_inside

_KEY: Final = otel.create_key("flowmark-httpx-loop")
_CONNECTING: Final = frozenset(("connect_tcp", "connect_unix_socket"))


class HTTPXInstrumentor(Adapter):
    """Records each try to connect of transports that allow more than one.

    A try lasts until the connection stands, TLS included, and failed by the error that ends it.
    The limit is ``retries`` and one.
    """

    requirement = "httpcore >= 1.0.0"
    module = "httpcore"
    package: ClassVar[str] = "httpcore"

    def patch(self, patches: Patches) -> None:
        """Wrap the loop that connects, and the step by which it says what it does."""
        for flavour, make in (("_sync", self._connect), ("_async", self._connect_async)):
            module = import_module(f"{self.package}.{flavour}.connection")
            kind = "HTTPConnection" if flavour == "_sync" else "AsyncHTTPConnection"
            patches.wrap(getattr(module, kind), "_connect", make)
            patches.wrap(module, "Trace", _tracing)

    def _connect(self, original: Any) -> Any:
        @functools.wraps(original)
        def connect(connection: Any, request: Any) -> Any:
            loop = self._begun(connection)
            if loop is None:
                return original(connection, request)
            with running(loop, _KEY):
                return original(connection, request)

        return connect

    def _connect_async(self, original: Any) -> Any:
        @functools.wraps(original)
        async def connect(connection: Any, request: Any) -> Any:
            loop = self._begun(connection)
            if loop is None:
                return await original(connection, request)
            with running(loop, _KEY):
                return await original(connection, request)

        return connect

    def _begun(self, connection: Any) -> Loop | None:
        """The loop of one connection; None where it is tried once."""
        try:
            retries = connection._retries  # noqa: SLF001 - nothing public says it
            if not self.is_on or not retries:
                return None
            loop = Loop()
            host = connection._origin.host.decode("ascii")  # noqa: SLF001 - as above
            loop.plan(connection_name(host), retries + 1 if type(retries) is int else None)
            loop.enter(_KEY)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
            return None
        return loop


def _tracing(original: Any) -> Any:
    """What the library tells of each step: that it connects, and that this failed."""

    class Trace(original):  # type: ignore[misc]  # a class of the library's
        def __enter__(self) -> Any:
            self._begin()
            return super().__enter__()

        def __exit__(self, *ended: object) -> Any:
            _failed(ended)
            return super().__exit__(*ended)

        async def __aenter__(self) -> Any:
            self._begin()
            return await super().__aenter__()

        async def __aexit__(self, *ended: object) -> Any:
            _failed(ended)
            return await super().__aexit__(*ended)

        def _begin(self) -> None:
            loop = loop_under(_KEY)
            if loop is not None and self.name in _CONNECTING:
                loop.start()

    return functools.update_wrapper(Trace, original, updated=())


def _failed(ended: tuple[object, ...]) -> None:
    """A step is over; an error that ended it ends the try, before the library waits."""
    loop = loop_under(_KEY)
    error = ended[1] if len(ended) > 1 else None
    if loop is not None and isinstance(error, BaseException):
        loop.end(error)
