"""The stock OpenTelemetry Collector of ``collector/otelcol``: built once, run on free ports."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import requests

from flowmark_otel.model import Span
from tests.support.answers import free_port
from tests.support.killing import TYPE, batch, ids_of
from tests.support.locking import locked
from tests.support.otlp import traces_protobuf
from tests.support.ports import listening
from tests.support.serving import Serving

FOLDER: Final = Path(__file__).resolve().parents[2] / "collector" / "otelcol"
_BUILD_SECONDS: Final = 900
_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 30


def build(kept: Path) -> Path:
    """The binary, as the README of the folder builds it; one for each state of its sources."""
    sources = [FOLDER / name for name in ("go.mod", "go.sum", "main.go")]
    state = hashlib.sha256(b"\0".join(each.read_bytes() for each in sources)).hexdigest()
    made = kept / f"otelcol-{state[:16]}"
    with locked(kept):  # who comes meanwhile waits, and builds no second one
        if not made.exists():
            _build(sources, made)
    return made


def _build(sources: Iterable[Path], made: Path) -> None:
    with tempfile.TemporaryDirectory(dir=made.parent) as name:
        folder = Path(name)
        for source in sources:
            shutil.copy(source, folder)
        binary = folder / "otelcol"
        # Without optimisation a first build takes two thirds of the time.
        flags = ("-gcflags=all=-N -l", "-ldflags=-s -w")
        subprocess.run(
            ["env", "CGO_ENABLED=0", "go", "build", *flags, "-o", str(binary), "."],
            cwd=folder,
            check=True,
            timeout=_BUILD_SECONDS,
        )
        binary.replace(made)


class Stock(NamedTuple):
    """A running one: where it listens, ``HOST:PORT``."""

    grpc: str
    http: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(_STOP_SECONDS)


@contextmanager
def process(
    binary: Path, config: Path, env: Mapping[str, str], log: Path, *, listens: Iterable[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """``otelcol`` with a configuration and its variables, once it listens; ended by its id."""
    command = [str(binary), "--config", str(config)]
    with (
        log.open("ab") as output,
        subprocess.Popen(command, env={**os.environ, **env}, stderr=output) as started,
    ):
        try:
            assert listening(started, listens, _START_SECONDS), log.read_text()
            yield started
            started.terminate()
            started.wait(_STOP_SECONDS)
        finally:
            started.kill()


@contextmanager
def running(
    binary: Path, config: str | Path, folder: Path, env: Mapping[str, str]
) -> Iterator[Stock]:
    """One that takes OTLP, with a configuration of ``collector/otelcol`` or another folder.

    What it keeps on disk is in ``folder``, so that the next one finds it.
    """
    grpc, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    own = {
        "OTELCOL_GRPC": grpc,
        "OTELCOL_HTTP": http,
        "OTELCOL_STORAGE": str(folder / "storage"),
    }
    log = folder / "otelcol.log"
    with process(binary, FOLDER / config, {**own, **env}, log, listens=(grpc, http)) as started:
        yield Stock(grpc, http, started)


# -- what goes through it ----------------------------------------------------------------------
def batches(seed: int, count: int) -> list[list[Span]]:
    """Requests, no two with an event in common."""
    chance = random.Random(seed)
    return [batch(chance) for _ in range(count)]


def all_ids(requests_made: Iterable[list[Span]]) -> list[str]:
    """The ids of all their events."""
    return [each for spans in requests_made for each in ids_of(spans)]


def export(stock: Stock, spans: list[Span], seconds: float = 40) -> requests.Response:
    """The answer to one export, waited for so long."""
    url = f"http://{stock.http}/v1/traces"
    return requests.post(url, data=traces_protobuf(spans), headers=TYPE, timeout=seconds)


def states(serving: Serving, ids: list[str]) -> Counter[str]:
    """What the backend says of events."""
    found: Counter[str] = Counter()
    for start in range(0, len(ids), 1000):
        asked = {"eventIds": ids[start : start + 1000]}
        answer = requests.post(f"{serving.endpoint}/v1/flowmark/status", json=asked, timeout=30)
        found.update(event["state"] for event in answer.json()["events"])
    return found
