"""The other side of a ``flowmark`` exporter: connections to it, one call in each at a time."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from flowmark_otel.deliver.transport import Transport


class PeerTransport(Transport, Protocol):
    """A transport that also asks for capabilities, as both of ours do."""

    def capabilities(self, timeout: float) -> tuple[tuple[str, ...], str]:
        """What the other side acknowledges, and its id; raises NoAnswer."""
        ...


class Peers:
    """Connections that threads borrow; as many as are in use at once. Owns them."""

    def __init__(self, connect: Callable[[], PeerTransport]) -> None:
        self._connect = connect
        self._idle: queue.LifoQueue[PeerTransport] = queue.LifoQueue()

    @contextmanager
    def borrowed(self) -> Iterator[PeerTransport]:
        """One for the length of a block; the one used last is used again first."""
        try:
            transport = self._idle.get_nowait()
        except queue.Empty:
            transport = self._connect()
        try:
            yield transport
        finally:
            self._idle.put(transport)

    def close(self) -> None:
        """Close those that nobody uses."""
        while not self._idle.empty():
            self._idle.get_nowait().close()
