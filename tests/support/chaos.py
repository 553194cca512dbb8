"""A TCP proxy that breaks connections on purpose: after so many bytes of a request or an answer."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_CHUNK: Final = 65536
_WAIT: Final = 20
_RESET: Final = struct.pack("ii", 1, 0)


class Fault(NamedTuple):
    """How one connection ends: after so many bytes that way; by a reset, or by an orderly close.

    None: that way is not cut.
    """

    request_bytes: int | None = None
    answer_bytes: int | None = None
    reset: bool = True


class Chaos:
    """Passes connections on to ``target``; each of the next ones meets one of ``faults``."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.faults: list[Fault] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """``HOST:PORT`` it listens on."""
        return "{}:{}".format(*self._listener.getsockname()[:2])

    def redirect(self, target: str) -> None:
        """Pass new connections on to another ``HOST:PORT``."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    def settle(self) -> None:
        """Wait until every connection was met that came before; where nobody listens behind it.

        They are met in turn; a process may have died since, with its request still under way.
        """
        met = contextlib.suppress(ConnectionError)
        with met, socket.create_connection(self._listener.getsockname()[:2], _WAIT) as last:
            assert not last.recv(1), "somebody listens behind it"

    def cut(self) -> None:
        """Break every connection there is."""
        with self._lock:
            left = list(self._open)
        for each in left:
            _break(each, reset=False)

    def close(self) -> None:
        """Break every connection, and take no other."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._thread.join(_WAIT)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                fault = self.faults.pop(0) if self.faults else Fault()
            try:
                far = socket.create_connection(self._target, _WAIT)
            except OSError:
                _break(near, reset=True)
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
            for source, sink, limit in (
                (near, far, fault.request_bytes),
                (far, near, fault.answer_bytes),
            ):
                threading.Thread(
                    target=self._pass,
                    args=(source, sink, limit, (near, far), fault.reset),
                    daemon=True,
                ).start()

    def _pass(
        self,
        source: socket.socket,
        sink: socket.socket,
        limit: int | None,
        both: tuple[socket.socket, socket.socket],
        reset: bool,  # noqa: FBT001 - a thread's argument
    ) -> None:
        left = limit
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if left is not None:
                    data, rest = data[:left], data[left:]
                    left -= len(data)
                    sink.sendall(data)
                    if rest or not left:
                        break
                else:
                    sink.sendall(data)
        for each in both:
            _break(each, reset=reset and limit is not None)
        with self._lock:
            self._open -= set(both)


def _break(connection: socket.socket, *, reset: bool) -> None:
    with contextlib.suppress(OSError):
        if reset:
            # Without linger closing sends RST, but not before the thread that still reads let go.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
            connection.close()
        else:
            connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def chaos(target: str) -> Iterator[Chaos]:
    """A proxy in front of ``HOST:PORT``."""
    proxy = Chaos(target)
    try:
        yield proxy
    finally:
        proxy.close()
