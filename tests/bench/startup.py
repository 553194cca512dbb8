"""How soon ``serve`` is ready, and what it holds while nothing arrives."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.report import Figure
from tests.support.serving import Serving

ROUNDS = 5
SECONDS = 2.0
MEBIBYTES = 120


def measure() -> list[Figure]:
    """From the start of the process to its ready line, on a new store and on an old one."""
    new: list[float] = []
    again: list[float] = []
    idle: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            store = Path(folder) / f"{turn}.db"
            for found in (new, again):
                began = time.perf_counter()
                with Serving(store, "--insecure-no-auth") as serving:
                    found.append(time.perf_counter() - began)
                    idle.append(_resident(serving.process.pid))
    return [
        Figure("start, new store", statistics.median(new), "s", most=SECONDS),
        Figure("start, old store", statistics.median(again), "s", most=SECONDS),
        Figure("idle memory", max(idle), "MiB resident", most=MEBIBYTES),
    ]


def _resident(pid: int) -> float:
    """Resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    msg = f"process {pid} tells no memory"
    raise LookupError(msg)
