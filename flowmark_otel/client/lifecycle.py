"""The client of this process: made once, flushed, ended, and started anew in a child.

The state here is owned by ``_lock``. A client that was replaced by another ``configure`` stays
until what it recorded was answered for: ``flush`` speaks for all of them.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opentelemetry import trace

from flowmark_otel import names
from flowmark_otel.annotate.hook import tell
from flowmark_otel.annotate.links import started
from flowmark_otel.annotate.seconds import time_to_wait
from flowmark_otel.client.core import FlowmarkClient, OnAttempt, OnDiagnostic
from flowmark_otel.client.wiring import Wiring, checked
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.config.client import client_options
from flowmark_otel.errors import ConfigurationError, DeliveryError

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    from flowmark_otel.deliver import Transport

    class MoreSettings(TypedDict, total=False):
        """The settings that are set less often, each as ``ClientOptions`` has it, or as text."""

        protocol: str
        timeout: int
        compression: str
        headers: Mapping[str, str] | str
        certificate: str | Path
        client_certificate: str | Path
        client_key: str | Path
        baggage: str
        signals: str
        redact: str
        strict: bool
        endpoint_from_otel: bool


FLUSH_SECONDS: Final = 30.0

EXIT_SECONDS: Final = 5.0
"""How long the end of the interpreter waits for what is still queued."""

_log = logging.getLogger("flowmark_otel")

_MOST_NAMED: Final = 100


class _Process:
    """What this process has; ``lock`` guards the rest."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.client: FlowmarkClient | None = None
        self.replaced: list[FlowmarkClient] = []
        self.before_flush: list[Callable[[float], None]] = []

    def after_fork(self) -> None:
        """In a child: the parent delivers what it recorded, and answers for it."""
        self.lock = threading.RLock()
        self.replaced = []
        started.after_fork()
        if self.client is not None:
            self.client.after_fork()
            _finish_with_multiprocessing()


_process: Final = _Process()


def current() -> FlowmarkClient:
    """The client, configured from the environment if nobody did."""
    found = _process.client
    if found is None:
        with _process.lock:
            found = _process.client
            if found is None:
                found = _process.client = _made({}, Wiring())
    return found


def configure(  # noqa: PLR0913 - what the contract lets be given, each by name
    *,
    endpoint: str | None = None,
    api_key: str | None = None,
    spool_dir: str | Path | None = None,
    tracer_provider: trace.TracerProvider | None = None,
    on_diagnostic: OnDiagnostic | None = None,
    on_attempt: OnAttempt | None = None,
    transport: Transport | None = None,
    clock: Clock | None = None,
    **settings: Unpack[MoreSettings],
) -> None:
    """Wire the client, once, before recording; what is not given comes from the environment.

    ``tracer_provider``: where spans are recorded, the global one if None; one of the SDK gets the
    processor, and its sampler is wrapped (E2). ``on_diagnostic``: called with each ``Diagnostic``,
    never on a thread that records. ``on_attempt``: called with each ``ObservedAttempt``, where it
    is reported (B8). ``transport``: carries requests in the place of the built-in
    ones (A25). A wrong setting is reported and its default used. What was recorded with an earlier
    configuration is delivered by it, and ``flush`` speaks for both.
    """
    arguments: dict[str, object] = {
        "endpoint": endpoint,
        "api_key": api_key,
        "spool_dir": spool_dir,
        **settings,
    }
    wiring = Wiring(tracer_provider, on_diagnostic, on_attempt, transport, clock)
    with _process.lock:
        made = _made(arguments, wiring)
        if _process.client is not None:
            _process.replaced.append(_process.client)
        _process.client = made
    made.attach(sampling=True)


def flush(timeout: float = FLUSH_SECONDS) -> None:
    """Wait, at most ``timeout`` seconds, until what was recorded is answered for (A22).

    Raises DeliveryError naming what was not acknowledged since the flush before, and why.
    """
    deadline = _deadline(timeout)
    _drain_sources(deadline)
    _each(lambda client: client.delivery.flush(deadline()))
    with _process.lock:
        settled, _process.replaced = _process.replaced, []
    for client in settled:
        client.delivery.shutdown(0)


def shutdown(timeout: float = FLUSH_SECONDS) -> None:
    """As ``flush``, and end the client: what is recorded from now on is dropped, and counted.

    What dead processes left in the spool is delivered too while ``timeout`` lasts; none of it
    makes this raise (E1).
    """
    deadline = _deadline(timeout)
    _drain_sources(deadline)
    _each(lambda client: client.delivery.shutdown(deadline()))


def try_flush(timeout: float) -> bool:
    """As ``flush``, but False where that raises; what it judged is said at exit again."""
    deadline = _deadline(timeout)
    _drain_sources(deadline)
    judged = [client.delivery.try_flush(deadline()) for client in _clients()]  # each of them
    return all(judged)


@contextmanager
def set_aside() -> Iterator[None]:
    """No client for the length of a block, in which another can be made; then all is as before.

    For tests of applications. What the block's own client recorded is its user's to flush.
    """
    with _process.lock:
        before, replaced = _process.client, _process.replaced
        _process.client, _process.replaced = None, []
    try:
        yield
    finally:
        with _process.lock:
            _process.client, _process.replaced = before, replaced


def drain_first(source: Callable[[float], None]) -> None:
    """Have something hand over what it holds, within seconds, whenever the client is flushed."""
    with _process.lock:
        if source not in _process.before_flush:
            _process.before_flush.append(source)


def _made(arguments: Mapping[str, object], wiring: Wiring) -> FlowmarkClient:
    options, faults = client_options(arguments, os.environ)
    wiring, more = checked(wiring)
    faults += more
    if faults and options.strict:
        raise ConfigurationError(faults)
    # Protobuf and all that encodes: needed by the first record, not by the import of the package.
    from flowmark_otel.deliver import Delivery  # noqa: PLC0415

    clock = wiring.clock or SystemClock()
    delivery = Delivery(
        options,
        clock=clock,
        transport=wiring.transport,
        on_diagnostic=wiring.on_diagnostic,
    )
    client = FlowmarkClient(options, delivery, clock, wiring.tracer_provider, wiring.on_attempt)
    client.report(names.DIAGNOSTIC_CONFIGURATION, faults)
    delivery.start()
    _finish_with_multiprocessing()
    return client


def _clients() -> list[FlowmarkClient]:
    with _process.lock:
        newest = _process.client
        return [*_process.replaced, *([] if newest is None else [newest])]


def _each(act: Callable[[FlowmarkClient], None]) -> None:
    """Act on every client; raises one DeliveryError for all that did."""
    found: list[DeliveryError] = []
    for client in _clients():
        try:
            act(client)
        except DeliveryError as raised:  # noqa: PERF203 - there is one client, rarely two
            found.append(raised)
    if len(found) == 1:
        raise found[0]
    if found:
        counts: Counter[tuple[str, str]] = Counter()
        for error in found:
            counts.update(error.counts)
        failures = [failure for error in found for failure in error.failures]
        message = "; ".join(str(error) for error in found)
        raise DeliveryError(message, failures[:_MOST_NAMED], counts)


def _deadline(timeout: object) -> Callable[[], float]:
    """The seconds that are left, whenever asked; a wrong timeout is reported, not raised."""
    seconds, fault = time_to_wait(timeout, FLUSH_SECONDS, "timeout")
    if fault:
        tell(current(), names.DIAGNOSTIC_INVALID, f"{fault}, in seconds; {seconds:g} is used")
    clock = SystemClock()
    end = clock.monotonic() + seconds
    return lambda: max(0.0, end - clock.monotonic())


def _drain_sources(left: Callable[[], float]) -> None:
    for source in list(_process.before_flush):
        source(left())


def _at_exit() -> None:
    """Flush, in bounded time, and say what was lost: nobody else will (A22).

    Nothing is closed, since others may still hand over at their exit.
    """
    with suppress(Exception):
        deadline = _deadline(EXIT_SECONDS)
        try:
            _drain_sources(deadline)
            _each(lambda client: client.delivery.finish(deadline()))
        except DeliveryError as error:
            _log.warning("at exit: %s", error)


def _finish_with_multiprocessing() -> None:
    """Children of ``multiprocessing`` skip the exit of the interpreter, and have one of their own.

    A forked child clears what its parent registered, after our fork hook: so it registers again.
    """
    module = sys.modules.get("multiprocessing.util")
    if module is not None:
        module.register_after_fork(_process, _finish_again)
        if sys.modules["multiprocessing.process"].parent_process() is not None:
            _finish_again(_process)


def _finish_again(_: _Process) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, _at_exit, exitpriority=-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.after_fork)
atexit.register(_at_exit)
