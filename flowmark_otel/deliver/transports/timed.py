"""Connections of ``requests`` whose every byte counts against one deadline.

The timeouts of a socket bound one wait each; a peer that sends a byte now and then holds a call
for ever. Here each wait of a request, in sending and in reading, has what is left of its time.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from http.client import HTTPResponse
from typing import Any, Final

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_SLICE: Final = 64 * 1024
_LEAST: Final = 0.001


class Deadline:
    """A moment of the monotonic clock, shared by an adapter and its connections."""

    def __init__(self) -> None:
        self._at = 0.0

    def within(self, seconds: float) -> None:
        """It is so many seconds from now."""
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; raises TimeoutError if none are."""
        left = self._at - time.monotonic()
        if left <= 0:
            msg = "timed out"
            raise TimeoutError(msg)
        return max(left, _LEAST)


class TimedAdapter(HTTPAdapter):
    """An adapter whose connections keep to ``deadline``; it tries once and keeps one connection."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as its base
        """As the base class, with connections of ours."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _pools(self._deadline)

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as its base
        """As the base class, with connections of ours."""
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = _pools(self._deadline)
        return manager


def _pools(deadline: Deadline) -> dict[str, type[HTTPConnectionPool]]:
    """Pool classes by scheme, whose connections keep to this deadline."""

    class Response(HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:  # noqa: ANN401
            super().__init__(sock, *args, **options)
            self.fp.close()
            self._timed = _Timed(sock, deadline)
            self.fp = io.BufferedReader(self._timed)

        def begin(self) -> None:
            # The base class takes the end of the connection for the end of the headers.
            super().begin()
            if self._timed.ended:
                msg = "the answer was cut in its head"
                raise ConnectionResetError(msg)

    class Plain(HTTPConnection):
        response_class = Response

        def send(self, data: Any) -> None:  # noqa: ANN401 - as its base
            _send(super().send, self, data, deadline)

    class Secure(HTTPSConnection):
        response_class = Response

        def send(self, data: Any) -> None:  # noqa: ANN401 - as its base
            _send(super().send, self, data, deadline)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _send(send: Any, connection: Any, data: Any, deadline: Deadline) -> None:  # noqa: ANN401
    """Send in slices, each with what is left of the time."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        send(data)
        return
    view = memoryview(data)
    for start in range(0, len(view), _SLICE):
        if connection.sock is not None:
            connection.sock.settimeout(deadline.left())
        send(view[start : start + _SLICE])


class _Timed(io.RawIOBase):
    """Reads of a socket, each with what is left of the time."""

    def __init__(self, sock: socket.socket | ssl.SSLSocket, deadline: Deadline) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        self.ended = False
        self._file = sock.makefile("rb", buffering=0)  # keeps the socket open until it is closed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - as its base
        self._sock.settimeout(self._deadline.left())
        found = self._sock.recv_into(buffer)
        self.ended = self.ended or not found
        return found

    def close(self) -> None:
        self._file.close()
        super().close()
