"""Recording into memory for the length of a block: what the pytest fixture does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from opentelemetry import trace

from flowmark_otel.client import environment, flush, lifecycle, shutdown
from flowmark_otel.client.core import FlowmarkClient
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.config.client import client_options
from flowmark_otel.deliver import Delivery
from flowmark_otel.errors import ConfigurationError, DeliveryError
from flowmark_otel.model import Diagnostic, ObservedAttempt
from flowmark_otel.testing.backend import InMemoryBackend

FLUSH_SECONDS: Final = 5.0
_SPOOL: Final = environment.FLOWMARK_SPOOL_DIR

_active: Final[list[InMemoryBackend]] = []
"""The backends of the blocks that are open, the innermost last."""


@contextmanager
def recording(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    clock: Clock | None = None,
    on_diagnostic: Callable[[Diagnostic], object] | None = None,
    on_attempt: Callable[[ObservedAttempt], object] | None = None,
    strict: bool = True,
) -> Iterator[InMemoryBackend]:
    """Record into a new in-memory backend until the block ends; then the client is as before.

    ``tracer_provider``, ``clock``, ``on_diagnostic``, ``on_attempt``: as for
    ``flowmark_otel.configure``; other settings come from the environment, but a spool of it is left
    alone. ``strict``: a wrong use raises InvalidUse where it happens (``FLOWMARK_STRICT``).

    Reading from the backend first flushes, and so does the end of the block: DeliveryError is
    raised if something was not acknowledged that nobody has been told of, unless the backend was
    set to be unavailable or not to acknowledge.
    """
    backend = InMemoryBackend(clock=clock)
    # A test must not deliver what a real process left in its spool.
    environ = {name: value for name, value in os.environ.items() if name != _SPOOL}
    options, faults = client_options({"strict": strict}, environ)
    if faults:
        raise ConfigurationError(faults)
    own_clock = clock or SystemClock()
    delivery = Delivery(options, clock=own_clock, transport=backend, on_diagnostic=on_diagnostic)
    client = FlowmarkClient(options, delivery, own_clock, tracer_provider, on_attempt)
    # Nothing public puts a client back that another took the place of.
    process = lifecycle._process  # noqa: SLF001
    with process.lock:
        before, replaced = process.client, process.replaced
        process.client, process.replaced = client, []
    client.attach(sampling=True)
    backend.before_reading = lambda: _settle(backend)
    _active.append(backend)
    try:
        yield backend
        _settle(backend)
    finally:
        _active.remove(backend)
        with suppress(DeliveryError):
            shutdown(0.0)
        with process.lock:
            process.client, process.replaced = before, replaced


def active_backend() -> InMemoryBackend:
    """The backend of the innermost block; raises AssertionError outside of all."""
    if not _active:
        msg = "nothing is recorded into memory; use recording() or the fixture flowmark_backend"
        raise AssertionError(msg)
    return _active[-1]


def _settle(backend: InMemoryBackend) -> None:
    try:
        flush(FLUSH_SECONDS if backend.available else 0.0)
    except DeliveryError:
        if backend.available and backend.acknowledges:
            raise
