"""``collect`` as a process: until a signal, then drained within a bound (fault row 26)."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from typing import Final

from flowmark_otel.collector.collector import Collector, Started
from flowmark_otel.collector.plan import Plan
from flowmark_otel.listen import logs
from flowmark_otel.listen.memory import return_large_buffers

STOP_SECONDS: Final = 25.0
"""So long after the first signal the process ends whatever is still in flight."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_SWITCH_SECONDS: Final = 0.0005
_YOUNG_OBJECTS: Final = 20_000
"""So many more of them before they are looked through: what one request is made of ends by
itself, and would be looked through several times before."""

_log = logging.getLogger(__name__)


def run(plan: Plan) -> None:
    """Collect until SIGTERM or SIGINT, then stop; a second signal ends the process at once.

    So does ``STOP_SECONDS`` after the first: what was acknowledged is synced or delivered.
    """
    logs.configure(plan.log_level)
    return_large_buffers()
    asyncio.run(_collect(plan))


async def _collect(plan: Plan) -> None:
    stopping = _stop_on_signals()
    collector = Collector(plan)
    started = await collector.start()
    # A thread that comes back to the loop waits for the interpreter lock, by default up to 5 ms.
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # what was imported stays: it need not be looked through again and again
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    try:
        _ready(started)
        await stopping.wait()
        logs.say(_log, logging.INFO, "stopping")
    finally:
        await collector.stop()
    logs.say(_log, logging.INFO, "stopped")


def _stop_on_signals() -> asyncio.Event:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
        loop.call_later(STOP_SECONDS, _give_up)
        stopping.set()

    for each in _SIGNALS:
        loop.add_signal_handler(each, stop)
    return stopping


def _give_up() -> None:
    logs.say(_log, logging.ERROR, "stopped_with_requests_in_flight", seconds=STOP_SECONDS)
    os._exit(1)


def _ready(started: Started) -> None:
    """The ready line has the first address of each kind; the log, written before, has all."""
    logs.say(
        _log,
        logging.INFO,
        "collecting",
        grpc=started.grpc,
        http=started.http,
        telemetry=started.telemetry,
    )
    first = {"grpc": started.grpc[:1], "http": started.http[:1]}
    shown = " ".join(f"{kind}={found[0]}" for kind, found in first.items() if found)
    print(f"ready {shown}", flush=True)  # noqa: T201 - scripts wait for it
