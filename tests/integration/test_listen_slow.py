"""Peers that are slow, silent, stalled or wrong, written byte by byte; others are served meanwhile.

The bounds are the listener's own, set low; every wait here ends by what the listener does.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Iterator

import grpc
import pytest
import requests

from flowmark_otel.listen import connections, grpc as listen_grpc
from flowmark_otel.listen.connections import BoundedProtocol
from flowmark_otel.listen.grpc import TRACES
from tests.support.accepting import KEY, Listening, listening

WAIT = 20
STEP = 0.01
HEAD = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
AUTHORIZED = HEAD + b"authorization: Bearer ingest\r\n"
QUESTION = json.dumps({"eventIds": ["op-" + "x" * 100] * 1000}).encode()


@pytest.fixture
def served() -> Iterator[Listening]:
    """A listener."""
    with listening() as found:
        yield found


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> type[BoundedProtocol]:
    """The protocol, its patience cut to a fraction."""
    for name in ("head_seconds", "message_seconds", "write_seconds"):
        monkeypatch.setattr(BoundedProtocol, name, 0.3)
    return BoundedProtocol


@contextlib.contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    """A connection to ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT) as client:
        yield client


def post(served: Listening) -> int:
    """The status of an ordinary request."""
    headers = {"authorization": KEY, "content-type": "application/json"}
    url = f"http://{served.http}/v1/traces"
    return requests.post(url, data=b"{}", headers=headers, timeout=WAIT).status_code


def until_closed(client: socket.socket) -> bytes:
    """All that is answered before the connection ends, orderly or not."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            found += part
    return found


def dripped(client: socket.socket, drop: bytes) -> bytes:
    """What is answered to a sender that goes on, drop by drop, until its connection ends."""
    client.settimeout(STEP)
    found = b""
    with contextlib.suppress(ConnectionError):
        while True:
            client.sendall(drop)
            try:
                part = client.recv(65536)
            except TimeoutError:
                continue
            if not part:
                break
            found += part
    return found


def status_line(answer: bytes) -> int:
    """The status of an answer, whose body must be a status in JSON."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert json.loads(body)["message"]
    return int(head.split()[1])


@pytest.mark.usefixtures("hasty")
def test_who_says_nothing_is_let_go(served: Listening) -> None:
    """Fault row 15: a connection without a request ends; others are served meanwhile."""
    with connected(served.http) as silent:
        assert post(served) == 200
        assert until_closed(silent) == b""


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("begun", [b"POST /", HEAD, HEAD + b"x-a: "])
def test_a_slow_head_is_503(served: Listening, begun: bytes) -> None:
    """Fault row 15: a head that comes drop by drop is bounded as a whole."""
    with connected(served.http) as slow:
        slow.sendall(begun)
        assert post(served) == 200
        answer = dripped(slow, b"x")
    assert status_line(answer) == 503
    assert b"\r\nretry-after: 1\r\n" in answer


@pytest.mark.usefixtures("hasty")
def test_a_slow_second_head_is_503(served: Listening) -> None:
    """Fault row 15: so is that of a later request on the connection."""
    with connected(served.http) as slow:
        slow.sendall(b"GET /v1/flowmark/capabilities HTTP/1.1\r\nhost: x\r\n\r\nGET ")
        answer = dripped(slow, b"x")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"HTTP/1.1 503 " in answer


def test_a_head_without_end_is_400(served: Listening) -> None:
    """Fault row 15: a head is bounded in bytes too."""
    line = b"x-a: " + b"b" * 1000 + b"\r\n"
    with connected(served.http) as client:
        client.sendall(HEAD)
        with contextlib.suppress(ConnectionError):
            client.sendall(line * 2 * (connections.MAX_HEAD_BYTES // len(line)))
            client.sendall(line)
        assert until_closed(client)[:12] in {b"HTTP/1.1 400", b""}
    assert post(served) == 200


@pytest.mark.usefixtures("hasty")
def test_who_was_refused_cannot_go_on_sending(served: Listening) -> None:
    """Fault row 15: the rest of a refused body is read away for a bounded time."""
    with connected(served.http) as slow:
        slow.sendall(HEAD + b"content-length: 1000000\r\n\r\n")
        assert slow.recv(65536).startswith(b"HTTP/1.1 401 ")
        dripped(slow, b"x")
    assert post(served) == 200


@pytest.mark.usefixtures("hasty")
def test_who_reads_no_answers_is_let_go(served: Listening) -> None:
    """Fault row 10: a peer that asks and asks and reads nothing loses its connection."""
    asked = HEAD.replace(b"/v1/traces", b"/v1/flowmark/status") + (
        b"authorization: Bearer ingest\r\ncontent-length: %d\r\n\r\n" % len(QUESTION)
    )
    with connected(served.http) as stopped:
        stopped.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            stopped.sendall((asked + QUESTION) * 1000)
    assert post(served) == 200


def test_idle_connections_shut_nobody_out(
    served: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 15: beyond the number of connections those go that wait longest for a request."""
    monkeypatch.setattr(BoundedProtocol, "max_connections", 4)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(served.http)) for _ in range(12)]
        assert post(served) == 200
        assert [until_closed(each) for each in idle[:8]] == [b""] * 8


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"content-length: -2\r\n\r\n{}",
        b"content-length: 2x\r\n\r\n{}",
        b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"x y: 1\r\n\r\n",
        b" folded\r\n\r\n",
    ],
)
def test_ambiguous_requests_are_400(served: Listening, head: bytes) -> None:
    """Fault row 19: two lengths, or none that can be read: refused, and the connection closed."""
    with connected(served.http) as client:
        client.sendall(AUTHORIZED + head)
        assert status_line(until_closed(client)) == 400
    assert not served.double.calls
    assert post(served) == 200


@pytest.mark.parametrize("line", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"FOO / HTTP/1.1\r\n"])
def test_what_is_no_http_is_400(served: Listening, line: bytes) -> None:
    """Fault row 19: another protocol on the port is told so, never a crash."""
    with connected(served.http) as client:
        client.sendall(line + b"\r\n")
        assert status_line(until_closed(client)) == 400
    assert post(served) == 200


def test_chunks_make_a_body(served: Listening) -> None:
    """Fault row 19: a chunked body is a body, however small its chunks."""
    with connected(served.http) as client:
        client.sendall(AUTHORIZED + b"transfer-encoding: chunked\r\n\r\n")
        for byte in b'{"x": []}':
            client.sendall(b"1\r\n" + bytes([byte]) + b"\r\n")
        client.sendall(b"0\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert served.double.calls[0].body == b'{"x": []}'


@pytest.fixture
def hasty_grpc(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    """A listener whose gRPC half has little patience."""
    own = dict(listen_grpc.BOUNDS) | {
        "grpc.server_handshake_timeout_ms": 500,
        "grpc.http2.settings_timeout": 5000,
        "grpc.keepalive_time_ms": 1000,
        "grpc.keepalive_timeout_ms": 500,
        "grpc.http2.ping_timeout_ms": 500,
    }
    monkeypatch.setattr(listen_grpc, "BOUNDS", tuple(own.items()))
    with listening() as found:
        yield found


def export(served: Listening, **metadata: str) -> str:
    """The code that an ordinary call ends with."""
    with grpc.insecure_channel(served.grpc) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes]
        call = channel.unary_unary(f"/{TRACES}/Export")
        try:
            call(b"", metadata=(("authorization", KEY), *metadata.items()), timeout=WAIT)
        except grpc.RpcError as error:
            found: object = error
            assert isinstance(found, grpc.Call)
            return found.code().name
        return "OK"


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = struct.pack(">HBBBI", 0, 0, 4, 0, 0)
ACK = struct.pack(">HBBBI", 0, 0, 4, 1, 0)
OPEN_HEAD = struct.pack(">HBBBI", 0, 1, 1, 0, 1) + b"\x83"


@pytest.mark.parametrize("sent", [b"", PREFACE[:10], PREFACE + SETTINGS + ACK + OPEN_HEAD])
def test_a_stalled_grpc_peer_is_let_go(hasty_grpc: Listening, sent: bytes) -> None:
    """Fault rows 10 and 15: no preface, half of one, half a head: the connection ends."""
    with connected(hasty_grpc.grpc) as stalled:
        stalled.sendall(sent)
        assert export(hasty_grpc) == "OK"
        until_closed(stalled)


def test_large_metadata_is_refused(served: Listening) -> None:
    """Fault row 15: a call's head is bounded in bytes."""
    assert export(served, padding="x" * 200_000) != "OK"
    assert export(served) == "OK"
    assert len(served.double.calls) == 1
