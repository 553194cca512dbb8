"""Collectors for tests: in this process with its parts in sight, or as processes to be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.collector.collector import Collector
from flowmark_otel.collector.config.loading import plan_of
from flowmark_otel.collector.meter import NodeReading
from tests.support.answers import JSON, Answer, Received, Reply
from tests.support.loop import LoopThread, loop_thread

ROOT = Path(__file__).parents[2]
ANY_PORTS: dict[str, Any] = {
    "otlp": {
        "protocols": {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": "127.0.0.1:0"}}
    }
}


class Collecting(NamedTuple):
    """Where a collector listens, ``HOST:PORT``; the collector itself, and its loop."""

    grpc: str
    http: str
    collector: Collector
    loop: LoopThread


def node(found: Collecting, name: str) -> NodeReading:
    """What a node says of itself."""
    return next(each for each in found.collector.meter.nodes() if each.id == name)


def configuration(
    endpoint: str,
    *,
    spool: Path | None = None,
    letters: Path | None = None,
    fold: Mapping[str, object] | None = None,
    **exporter: object,
) -> dict[str, Any]:
    """A file that folds traces, takes envelopes from SDKs too, and delivers to ``endpoint``.

    With ``spool`` it takes custody there; with ``letters`` both nodes route to that file.
    """
    routed: dict[str, object] = {}
    connectors: dict[str, Any] = {}
    exporters: dict[str, Any] = {}
    pipelines: dict[str, Any] = {
        "traces": {"receivers": ["otlp"], "exporters": ["flowmark/fold"]},
        "logs/sdk": {"receivers": ["otlp"], "exporters": ["flowmark"]},
        "logs/envelopes": {"receivers": ["flowmark/fold"], "exporters": ["flowmark"]},
    }
    if letters is not None:
        routed = {"on_error": "route", "errors": "errors/letters"}
        connectors["errors/letters"] = {}
        exporters["file/letters"] = {"path": str(letters)}
        pipelines["logs/letters"] = {
            "receivers": ["errors/letters"],
            "exporters": ["file/letters"],
        }
    connectors["flowmark/fold"] = {**routed, **(fold or {})}
    exporters["flowmark"] = {"endpoint": endpoint, **routed, **exporter}
    service: dict[str, Any] = {"pipelines": pipelines}
    if spool is not None:
        exporters["flowmark"]["spool"] = {"directory": str(spool)}
        service["acknowledge"] = "on_spool"
    return {
        "receivers": ANY_PORTS,
        "connectors": connectors,
        "exporters": exporters,
        "service": service,
    }


@contextmanager
def collecting(config: Mapping[str, object], clock: Clock | None = None) -> Iterator[Collecting]:
    """A collector in this process, from its start to its orderly stop."""
    collector = Collector(plan_of(yaml.safe_dump(dict(config)), os.environ), clock=clock)
    with loop_thread() as loop:
        started = loop.run(collector.start())
        try:
            yield Collecting(started.grpc[0], started.http[0], collector, loop)
        finally:
            loop.run(collector.stop())


def capable(then: Answer) -> Callable[[Received], Reply]:
    """An HTTP server that acknowledges attempts when it is asked, and answers exports so.

    Asked about events it knows none.
    """

    def answer(request: Received) -> Reply:
        if request.path == "/v1/flowmark/capabilities":
            listed = {"capabilities": [names.CAPABILITY], "backendId": "b"}
            return Reply(body=json.dumps(listed).encode(), content_type=JSON)
        if request.path == "/v1/flowmark/status":
            asked = json.loads(request.body)["eventIds"]
            known = {"events": [{"eventId": each, "state": names.STATE_UNKNOWN} for each in asked]}
            return Reply(body=json.dumps(known).encode(), content_type=JSON)
        return then if isinstance(then, Reply) else then(request)

    return answer


class Process(NamedTuple):
    """A collector that is a process of its own."""

    grpc: str
    http: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(20)

    def stop(self) -> int:
        """End it in order; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def process(
    config: Mapping[str, object], folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """``flowmark-otel collect``, killed at the end if it still lives; ``env`` is added to ours."""
    path = folder / "collector.yaml"
    path.write_text(yaml.safe_dump(dict(config)))
    command = [sys.executable, "-m", "flowmark_otel.cli", "collect", "--config", str(path)]
    with (
        (folder / "collector.log").open("ab") as log,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
        ) as running,
    ):
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line.startswith("ready "), (folder / "collector.log").read_text()
            said = dict(part.split("=", 1) for part in line.split()[1:])
            yield Process(said["grpc"], said["http"], running)
        finally:
            running.kill()
