"""The collector beside Rotel and, where there is one, the stock Collector (issue 9, Speed).

Processor time a span, user and system, of the process alone: one load generator, eight
connections, batches of 512 spans of twenty attributes, one sink that takes all of it. Ours checks
every span, folds the annotated ones and delivers their envelopes to a backend that acknowledges
them; the others forward. Ratios are within one run; what else the machine does is in the notes.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import agents, load
from tests.bench.agents import Agent
from tests.bench.report import Figure
from tests.bench.sink import Sink, sink

CONNECTIONS: Final = 8
MORE: Final = 8  # attributes beside the twelve
DISTINCT: Final = 24
WARM: Final = 1
TIMES: Final = 8
SHARES: Final = (0.0, 0.01, 0.1, 1.0)
FEW: Final = (0.0, 0.01)
ROUNDS: Final = 3
TRANSPORTS: Final = ("http", "grpc")
MOST_ANNOTATED: Final = 20.0
MOST_ADDED: Final = 10.0
GROWTH: Final = 1.1
_US: Final = 1e6

Start = Callable[[Sink, str, Path], AbstractContextManager[Agent]]


@dataclass
class Options:
    """What the command line says: a stock Collector's program, minutes of the soak."""

    otelcol: Path | None = None
    minutes: float = 0.0


OPTIONS: Final = Options()


def measure() -> list[Figure]:
    """All of it; without Rotel its rows are left out, and the targets with them."""
    cache = Path(tempfile.gettempdir()) / "flowmark-bench"
    cache.mkdir(exist_ok=True)
    agent = agents.install_rotel(cache)
    with tempfile.TemporaryDirectory() as name, sink() as taking:
        bench = _Bench(Path(name), taking, agent)
        figures: list[Figure] = []
        for transport in TRANSPORTS:
            figures += bench.compared(transport)
        figures += bench.small()
        figures += bench.latency()
        if OPTIONS.minutes:
            figures += bench.soak(OPTIONS.minutes)
        return figures


def measure_stock() -> list[Figure]:
    """Ours and the stock Collector in turn, at 0 and 1 % annotated spans (issue 10, Speed).

    Empty without a stock Collector: ``make otelcol`` builds one.
    """
    if OPTIONS.otelcol is None:
        return []
    with tempfile.TemporaryDirectory() as name, sink() as taking:
        bench = _Bench(Path(name), taking, None)
        return [figure for transport in TRANSPORTS for figure in bench.in_turn(transport)]


class _Bench:
    def __init__(self, folder: Path, taking: Sink, rotel: Path | None) -> None:
        self._folder = folder
        self._sink = taking
        self._rotel = rotel

    def compared(self, transport: str) -> list[Figure]:
        """Processor time a span of each collector, for each share of annotated spans."""
        figures = []
        rivals = dict(self._rivals())
        theirs = {
            name: self._cost(start, transport, 0.1 if "Python" in name else 0.0)
            for name, start in rivals.items()
        }
        figures += [
            Figure(f"{name}, {transport}", cost, "µs/span", note=_load())
            for name, cost in theirs.items()
        ]
        plain, python = theirs.get("Rotel"), theirs.get("Rotel with Python")
        for share in SHARES:
            cost = self._cost(agents.flowmark, transport, share)
            name = f"flowmark, {share:.0%} annotated, {transport}"
            most = MOST_ANNOTATED if share == 1.0 else None
            figures.append(Figure(name, cost, "µs/span", most=most, note=_load()))
            against, beside = ("Rotel", plain) if share < 0.1 else ("Rotel with Python", python)
            if beside:
                ratio = cost / beside
                # The target of 20 µs is of a machine on which that took 20, too.
                figures.append(Figure(f"{name}, of {against}", ratio, "ratio", most=1.0))
            stock = theirs.get("OpenTelemetry Collector")
            if stock and share < 0.1:
                ratio = cost / stock
                figures.append(Figure(f"{name}, of the stock one", ratio, "ratio", most=1.0))
        return figures

    def in_turn(self, transport: str) -> list[Figure]:
        """Medians of rounds in which each of the two has its turn, and their ratio."""
        [(_, stock)] = self._rivals()
        turns: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for share in FEW:
                for name, start in (("stock", stock), ("flowmark", agents.flowmark)):
                    cost = self._cost(start, transport, share)
                    turns.setdefault(f"{name}, {share:.0%} annotated, {transport}", []).append(cost)
        costs = {name: statistics.median(found) for name, found in turns.items()}
        figures = [
            Figure(name, cost, "µs/span", note=f"{1e6 / cost:,.0f} spans/s; {_load()}")
            for name, cost in costs.items()
        ]
        for share in FEW:
            kind = f"{share:.0%} annotated, {transport}"
            ratio = costs[f"flowmark, {kind}"] / costs[f"stock, {kind}"]
            figures.append(Figure(f"flowmark of the stock one, {kind}", ratio, "ratio", most=1.0))
        return figures

    def small(self) -> list[Figure]:
        """Batches of 1 and of 32, reported without a target."""
        figures = []
        for batch, count in ((1, 4000), (32, 1000)):
            rows: dict[str, Start] = {"flowmark": agents.flowmark, **dict(self._rivals())}
            for name, start in rows.items():
                for transport in TRANSPORTS:
                    cost = self._cost(start, transport, 0.0, batch=batch, count=count)
                    figures.append(
                        Figure(f"{name}, batches of {batch}, {transport}", cost, "µs/span")
                    )
        return figures

    def latency(self) -> list[Figure]:
        """What is added at a quarter of capacity, against the sink asked directly."""
        figures = []
        for transport in TRANSPORTS:
            path = self._requests(0.1)
            with agents.flowmark(self._sink, transport, self._folder) as agent:
                address = agent.address(transport)
                load.send(path, address, transport, CONNECTIONS, times=WARM)
                fast = load.send(path, address, transport, CONNECTIONS, times=4)
                rate = 4 * DISTINCT / fast["seconds"] / 4
                through = load.send(path, address, transport, CONNECTIONS, times=12, rate=rate)
            place = self._sink.grpc if transport == "grpc" else self._sink.http
            direct = load.send(path, place, transport, CONNECTIONS, times=12, rate=rate)
            for key, most in (("p50", None), ("p99", MOST_ADDED)):
                added = (through[key] - direct[key]) * 1e3
                note = f"{rate:.0f} requests/s; {_load()}"
                figures.append(
                    Figure(f"{key} added, {transport}", added, "ms", most=most, note=note)
                )
        return figures

    def soak(self, minutes: float) -> list[Figure]:
        """Memory at the end against memory after a tenth of the time, under a steady load."""
        path = self._requests(0.1)
        marks = [minutes * part for part in (0.1, 0.2, 0.5, 1.0)]
        met: list[int] = []
        with agents.flowmark(self._sink, "http", self._folder) as agent:
            began = time.monotonic()
            while len(met) < len(marks):
                load.send(path, agent.http, "http", CONNECTIONS, times=4)
                if time.monotonic() - began >= marks[len(met)] * 60:
                    met.append(agent.resident())
        told = ", ".join(
            f"{found / (1 << 20):.1f} MiB after {mark:g} min"
            for mark, found in zip(marks, met, strict=True)
        )
        name = f"memory after {minutes:g} min"
        note = f"{told}; {_load()}"
        return [Figure(name, met[-1] / met[0], "ratio", most=GROWTH, note=note)]

    def _rivals(self) -> Iterator[tuple[str, Start]]:
        rotel, stock = self._rotel, OPTIONS.otelcol
        if rotel is not None:
            yield "Rotel", lambda *given: agents.rotel(rotel, *given)
            yield "Rotel with Python", lambda *given: agents.rotel(rotel, *given, processor=True)
        if stock is not None:
            yield "OpenTelemetry Collector", lambda *given: agents.otelcol(stock, *given)

    def _cost(
        self,
        start: Start,
        transport: str,
        share: float,
        *,
        batch: int = load.BATCH,
        count: int = DISTINCT,
    ) -> float:
        """Microseconds of processor time a span, once it is warm."""
        path = self._requests(share, batch=batch, count=count)
        times = TIMES if batch == load.BATCH else 1
        with start(self._sink, transport, self._folder) as agent:
            address = agent.address(transport)
            load.send(path, address, transport, CONNECTIONS, times=WARM)
            self._drained()
            before = agent.seconds()
            load.send(path, address, transport, CONNECTIONS, times=times)
            self._drained()
            return (agent.seconds() - before) / (times * count * batch) * _US

    def _drained(self) -> None:
        """Wait until nothing more arrives: some answer first and deliver later."""
        last = -1
        while (found := self._sink.received()) != last:
            last = found
            time.sleep(0.5)

    def _requests(self, share: float, *, batch: int = load.BATCH, count: int = DISTINCT) -> Path:
        path = self._folder / f"{share}-{batch}"
        if not path.exists():
            load.write(path, load.bodies(count, share, seed=7, batch=batch, more=MORE))
        return path


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"
