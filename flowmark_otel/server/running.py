"""``serve`` as a process: until a signal, in this process or in several workers."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from flowmark_otel.config import ServeOptions
from flowmark_otel.listen import logs
from flowmark_otel.listen.memory import return_large_buffers
from flowmark_otel.server.backend import Server, Started

STOP_SECONDS: Final = 10.0
"""So long after the first signal the process ends whatever is still in flight."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_COLLECT_AFTER: Final = 50_000  # objects; about what is made of five requests of 512 spans
_SWITCH_SECONDS: Final = 0.0005

_log = logging.getLogger(__name__)


def run(options: ServeOptions, announce: Callable[[Started], None]) -> None:
    """Serve until SIGTERM or SIGINT, then stop; a second signal ends the process at once.

    So does ``STOP_SECONDS`` after the first, since nothing acknowledged depends on an orderly end.
    ``announce`` is called once, before the ready line: it shows the keys of a new store.
    """
    logs.configure(options.log_level)
    return_large_buffers()
    if options.workers == 1:
        asyncio.run(_serve(options, announce))
    else:
        from flowmark_otel.server.workers import supervise  # noqa: PLC0415  it imports this module

        if asyncio.run(supervise(options, lambda started: _ready(options, announce, started))):
            sys.exit(1)


async def _serve(options: ServeOptions, announce: Callable[[Started], None]) -> None:
    stopping = stop_on_signals(give_up)
    server = Server(options)
    started = await server.start()
    settle()
    try:
        _ready(options, announce, started)
        await stopping.wait()
        logs.say(_log, logging.INFO, "stopping")
    finally:
        await server.stop()
    logs.say(_log, logging.INFO, "stopped")


def stop_on_signals(late: Callable[[], None]) -> asyncio.Event:
    """An event that the first signal sets; ``late`` is called ``STOP_SECONDS`` after it.

    The second signal does what it does to any process.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
        loop.call_later(STOP_SECONDS, late)
        stopping.set()

    for each in _SIGNALS:
        loop.add_signal_handler(each, stop)
    return stopping


def settle() -> None:
    """Tune the interpreter for serving, once everything is imported."""
    # A thread that comes back from the database waits for the interpreter lock, by default up to
    # 5 ms; acceptor, writer and loop hand it to each other many times a transaction.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # What was imported stays: the collector need not look through it again and again. Nor through
    # each request in hand a hundred times: at Python's own threshold that took a third of all time.
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])


def give_up() -> None:
    """End the process with requests in flight, and say so."""
    logs.say(_log, logging.ERROR, "stopped_with_requests_in_flight", seconds=STOP_SECONDS)
    os._exit(1)


def _ready(options: ServeOptions, announce: Callable[[Started], None], started: Started) -> None:
    for address in options.keys_in_clear:
        logs.say(
            _log,
            logging.WARNING,
            "keys_in_clear",
            address=address,
            message="others can reach this address and keys cross the network unencrypted:"
            " give --tls-cert and --tls-key, or put a proxy that ends TLS in front",
        )
    announce(started)
    print(f"ready grpc={started.grpc} http={started.http}", flush=True)  # noqa: T201 - scripts wait for it
    logs.say(
        _log,
        logging.INFO,
        "serving",
        grpc=started.grpc,
        http=started.http,
        metrics=started.metrics,
        workers=options.workers,
        tls=options.tls_cert is not None,
    )
