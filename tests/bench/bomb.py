"""64 MiB of very many very small parts, sent to a backend of its own: time and memory of refusing.

The seconds are those the backend's process worked, sending and receiving over loopback included;
the memory is the peak of its resident set, over all bombs of one transport.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import requests

from flowmark_otel.listen.grpc import TRACES
from tests.bench.report import Figure
from tests.support import bombs
from tests.support.memory import peak_mib
from tests.support.serving import Serving

SIZE = 64 * bombs.MIB
SECONDS = 1.0
MEBIBYTES = 300
_TICKS = os.sysconf("SC_CLK_TCK")


def measure() -> list[Figure]:
    """Every bomb in protobuf over both transports, in JSON over HTTP."""
    figures = []
    for transport in ("http", "grpc"):
        worst, seconds = "", 0.0
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "flowmark.db"
            with Serving(store, "--insecure-no-auth") as serving:
                for name, body, kind in _bombs(transport):
                    took = _refused(serving, transport, body, kind)
                    if took > seconds:
                        worst, seconds = name, took
                peak = peak_mib(serving.process.pid)
        note = f"slowest: {worst}"
        figures += [
            Figure(f"64 MiB bomb, {transport}", seconds, "s", most=SECONDS, note=note),
            Figure(f"64 MiB bombs, {transport}", peak, "MiB peak", most=MEBIBYTES),
        ]
    return figures


def _bombs(transport: str) -> Iterator[tuple[str, bytes, str]]:
    for name, body in bombs.protobuf_bombs(SIZE):
        yield name, body, "application/x-protobuf"
    if transport == "http":
        for name, body in bombs.json_bombs(SIZE):
            yield name, body, "application/json"


def _refused(serving: Serving, transport: str, body: bytes, kind: str) -> float:
    began = _worked(serving.process.pid)
    if transport == "http":
        answer = serving.post("traces", body, kind)
        assert answer.status_code == requests.codes.request_entity_too_large, answer.text
    else:
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(serving.grpc, options=options) as channel:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes]
            call = channel.unary_unary(f"/{TRACES}/Export")
            try:
                call(body, timeout=60)
            except grpc.RpcError as error:
                found: object = error
                assert isinstance(found, grpc.Call)
                assert found.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return _worked(serving.process.pid) - began


def _worked(pid: int) -> float:
    """The processor seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
