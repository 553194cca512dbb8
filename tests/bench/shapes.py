"""Sidecar and gateway of ``collector/shapes``: what to give them (issue 10, shapes).

Processor time of the process alone, user and system, from the request to the acknowledged delivery
of all of it: eight connections over HTTP, batches of 512 spans of twelve attributes, to a sink that
acknowledges everything. No request comes twice. TLS is left out: see ``agents.shape``.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.bench import agents, load
from tests.bench.agents import Agent
from tests.bench.report import Figure
from tests.bench.sink import Sink, sink

SHAPES: Final = ("sidecar", "gateway")
SHARES: Final = (0.01, 0.1, 1.0)
WARM: Final = 8
COUNT: Final = 64
CONNECTIONS: Final = 8
_QUIET_SECONDS: Final = 1.5


def measure() -> list[Figure]:
    """Spans a processor second and the memory held at most, for each share of annotated spans."""
    with tempfile.TemporaryDirectory() as name, sink() as taking:
        return [
            figure
            for shape in SHAPES
            for share in SHARES
            for figure in _measured(shape, share, taking, Path(name))
        ]


def _measured(shape: str, share: float, taking: Sink, folder: Path) -> list[Figure]:
    own = folder / f"{shape}-{share}"
    own.mkdir()
    warm, path = own / "warm", own / "requests"
    load.write(warm, load.bodies(WARM, share, seed=1))
    load.write(path, load.bodies(COUNT, share, seed=2))
    with agents.shape(shape, taking, own) as agent:
        load.send(warm, agent.http, "http", CONNECTIONS)
        before = _settled(agent)
        load.send(path, agent.http, "http", CONNECTIONS)
        seconds = _settled(agent) - before
        held = agent.peak()
    spans = COUNT * load.BATCH
    name = f"{shape}, {share:.0%} annotated"
    note = f"{seconds / spans * 1e6:.1f} us/span; load {os.getloadavg()[0]:.1f}"
    return [
        Figure(name, spans / seconds, "spans a processor second", note=note),
        Figure(f"{name}, memory at most", held / 2**20, "MiB"),
    ]


def _settled(agent: Agent) -> float:
    """Its processor time once it does nothing more: all is delivered."""
    while True:
        before = agent.seconds()
        time.sleep(_QUIET_SECONDS)
        after = agent.seconds()
        if after - before < 0.02:  # what a process that waits may spend
            return after
