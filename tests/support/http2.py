"""One gRPC call written frame by frame, for messages that no grpc client can be made to send."""

from __future__ import annotations

import socket
import struct
from typing import Final

DATA: Final = 0
HEADERS: Final = 1
SETTINGS: Final = 4
END_STREAM: Final = 1
END_HEADERS: Final = 4
ACK: Final = 1
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_CHUNK: Final = 16384


def call(address: str, path: str, message: bytes, *, compressed: bool, authorization: str) -> bytes:
    """Send ``message``, flagged as gzip or not, and return all frames of the answer."""
    host, _, port = address.rpartition(":")
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": address,
        "te": "trailers",
        "content-type": "application/grpc",
        "grpc-encoding": "gzip",
        "authorization": authorization,
    }
    block = b"".join(
        _literal(name) + _literal(value, name=False) for name, value in headers.items()
    )
    body = struct.pack(">BI", compressed, len(message)) + message
    chunks = [body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK)]
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(_PREFACE + _frame(SETTINGS, 0, 0) + _frame(HEADERS, END_HEADERS, 1, block))
        for index, chunk in enumerate(chunks, 1):
            last = END_STREAM if index == len(chunks) else 0
            client.sendall(_frame(DATA, last, 1, chunk))
        return _until_end(client)


def status_of(frames: bytes) -> int:
    """The ``grpc-status`` of an answer: grpc writes trailers as literals."""
    _, _, rest = frames.partition(b"grpc-status")
    length = rest[0]
    return int(rest[1 : 1 + length])


def _until_end(client: socket.socket) -> bytes:
    found = b""
    answer = client.makefile("rb")
    while head := answer.read(9):
        length = int.from_bytes(head[:3], "big")
        kind, flags = head[3], head[4]
        payload = answer.read(length)
        if kind == SETTINGS and not flags & ACK:
            client.sendall(_frame(SETTINGS, ACK, 0))
        if kind == HEADERS:
            found += payload
            if flags & END_STREAM:
                break
    return found


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(text: str, *, name: bool = True) -> bytes:
    raw = text.encode()
    return (b"\0" if name else b"") + bytes([len(raw)]) + raw
