"""The load: requests encoded beforehand, sent by a process of its own over several connections.

Run as a program it reads length-prefixed bodies from a file, sends each once, and prints what was
acknowledged: ``{"seconds", "stored", "received", "p50", "p99"}``, the last two in seconds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from flowmark_otel.model import Receipt
from flowmark_otel.wire import receipt

BATCH = 512
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_AGAIN = 0.1
PLAIN = {
    "http.request.method": "POST",
    "url.full": "https://crm.example/v2/batches/42/contacts?dry_run=false",
    "server.address": "crm.example",
    "network.protocol.version": "1.1",
    "user_agent.original": "crm-worker/2.14.1",
    "thread.name": "worker-3",
}


def bodies(
    count: int, share: float, seed: int, *, batch: int = BATCH, more: int = 0
) -> Iterator[bytes]:
    """Requests of 512 spans of twelve attributes; ``share`` of the spans are annotated attempts.

    Annotated spans: runs of 32 operations, groups of one to three attempts, six of the twelve
    attributes are ours. ``more``: so many other attributes beside the twelve.
    """
    chance = random.Random(seed)
    serial = 0
    for _ in range(count):
        request = ExportTraceServiceRequest()
        group = request.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = "crm-worker"
        spans = group.scope_spans.add().spans
        number = 1
        for index in range(batch):
            span = spans.add(
                trace_id=chance.randbytes(16),
                span_id=chance.randbytes(8),
                name="POST /contacts",
                start_time_unix_nano=1_796_000_000_000_000_000 + serial * 1000,
                end_time_unix_nano=1_796_000_000_000_500_000 + serial * 1000,
            )
            for key, value in PLAIN.items():
                span.attributes.add(key=key).value.string_value = value
            for index_ in range(more):
                span.attributes.add(key=f"http.header.{index_}").value.string_value = "text/plain"
            if index < batch * share:
                number = number + 1 if number < 3 and chance.random() < 0.3 else 1
                named = {
                    "flowmark.workflow.name": "crm.sync",
                    "flowmark.run.id": f"{seed}-sync-{serial // 32}",
                    "flowmark.operation.name": "push-to-crm",
                    "flowmark.attempt.group_id": f"customer-batch-{serial - number}",
                }
                for key, value in named.items():
                    span.attributes.add(key=key).value.string_value = value
                span.attributes.add(key="flowmark.attempt.number").value.int_value = number
                span.attributes.add(key="flowmark.attempt.limit").value.int_value = 3
            else:
                for index_ in range(6):
                    span.attributes.add(key=f"app.detail.{index_}").value.int_value = serial
            serial += 1
        yield request.SerializeToString()


def write(path: Path, requests: Iterable[bytes]) -> None:
    """Write length-prefixed bodies."""
    with path.open("wb") as out:
        for body in requests:
            out.write(struct.pack(">I", len(body)) + body)


def send(
    path: Path,
    address: str,
    transport: str,
    connections: int = 4,
    *,
    times: int = 1,
    rate: float = 0.0,
) -> dict[str, float]:
    """Send the bodies of a file, so many times, from a process of its own; what it measured.

    ``rate``: requests a second, evenly; 0 for as fast as they are answered.
    """
    command = [sys.executable, "-m", "tests.bench.load", str(path), address, transport]
    command += [str(connections), "--times", str(times), "--rate", str(rate)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def read(path: Path) -> Iterator[bytes]:
    """The bodies of a file."""
    data = path.read_bytes()
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">I", data, position)
        yield data[position + 4 : position + 4 + size]
        position += 4 + size


def _http(address: str) -> Callable[[bytes], bytes]:
    connection = http.client.HTTPConnection(address, timeout=60)
    headers = {"content-type": "application/x-protobuf"}

    def call(body: bytes) -> bytes:
        while True:
            connection.request("POST", "/v1/traces", body, headers)
            answer = connection.getresponse()
            found = answer.read()
            if answer.status != http.client.SERVICE_UNAVAILABLE:
                assert answer.status == http.client.OK, found
                return found
            time.sleep(_AGAIN)  # it is shed while others use the machine

    return call


def _grpc(address: str) -> Callable[[bytes], bytes]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    call: Any = grpc.insecure_channel(address, options=options).unary_unary(EXPORT)
    return lambda body: bytes(call(body, timeout=60))


def main(arguments: list[str]) -> None:
    """Send every body of a file once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("address")
    parser.add_argument("transport", choices=["http", "grpc"])
    parser.add_argument("connections", type=int)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0)
    options = parser.parse_args(arguments)
    waiting: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
    for each in enumerate(list(read(options.file)) * options.times):
        waiting.put(each)
    answers: list[Receipt] = []
    took: list[float] = []

    def work() -> None:
        call = (_http if options.transport == "http" else _grpc)(options.address)
        while True:
            try:
                number, body = waiting.get_nowait()
            except Empty:
                return
            if options.rate:
                time.sleep(max(began + number / options.rate - time.perf_counter(), 0.0))
            sent = time.perf_counter()
            answer = call(body)
            took.append(time.perf_counter() - sent)
            answers.append(receipt.decode(answer, "protobuf"))

    threads = [threading.Thread(target=work) for _ in range(options.connections)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    stored = sum(answer.stored for answer in answers)
    received = sum(answer.received for answer in answers)
    took.sort()
    found = {
        "seconds": seconds,
        "stored": stored,
        "received": received,
        "p50": took[len(took) // 2],
        "p99": took[len(took) * 99 // 100],
    }
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
