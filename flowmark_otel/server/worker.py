"""One worker process: a backend on ports that it shares, tied to its supervisor by two pipes.

Standard input carries the orders, then nothing; its end means that the supervisor is gone, and the
worker with it. Standard output carries one line: ``ready``, or what is at fault, as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import sys
from typing import Final, NamedTuple

from flowmark_otel.config import ServeOptions
from flowmark_otel.errors import ConfigurationError, FlowmarkError
from flowmark_otel.listen import logs
from flowmark_otel.listen.memory import return_large_buffers
from flowmark_otel.server.backend import Server
from flowmark_otel.server.running import STOP_SECONDS, give_up, settle, stop_on_signals

READY: Final = "ready"


class Orders(NamedTuple):
    """What a worker is told: the options, with the ports that the supervisor reserved."""

    options: ServeOptions

    def line(self) -> bytes:
        """As the supervisor writes it."""
        return base64.b64encode(pickle.dumps(self)) + b"\n"

    @staticmethod
    def read(descriptor: int) -> Orders:
        """As the worker reads it, not a byte more."""
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = os.read(descriptor, 1)
            if not byte:
                sys.exit(1)  # the supervisor is gone already
            line += byte
        orders: Orders = pickle.loads(base64.b64decode(line))  # noqa: S301  from the parent process
        return orders


def main() -> None:
    """Serve until the supervisor says so, or is gone."""
    orders = Orders.read(sys.stdin.fileno())
    logs.configure(orders.options.log_level)
    return_large_buffers()
    asyncio.run(_serve(orders))


async def _serve(orders: Orders) -> None:
    stopping = stop_on_signals(give_up)
    loop = asyncio.get_running_loop()
    tether = sys.stdin.fileno()

    def gone() -> None:
        loop.remove_reader(tether)
        loop.call_later(STOP_SECONDS, give_up)
        stopping.set()

    loop.add_reader(tether, gone)
    server = Server(orders.options, shared=True)
    try:
        await server.start()
    except FlowmarkError as error:
        faults = error.faults if isinstance(error, ConfigurationError) else None
        _tell(json.dumps({"faults": faults, "message": str(error)}))
        sys.exit(1)
    settle()
    try:
        _tell(READY)
        await stopping.wait()
    finally:
        await server.stop()


def _tell(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())
