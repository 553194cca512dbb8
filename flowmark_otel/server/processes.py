"""What the processes of a backend take: processor time, memory, open files; their sums."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence
from functools import partial

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

_SUMMED = {
    "process_cpu_seconds": "process_cpu_seconds_total",
    "process_resident_memory_bytes": "process_resident_memory_bytes",
    "process_open_fds": "process_open_fds",
}


class Processes(Collector):
    """Sums over the processes that are alive; workers that ended keep their processor time."""

    def __init__(self, alive: Sequence[int]) -> None:
        self._alive = alive

    def collect(self) -> Iterable[Family]:
        """The families, under the names that Prometheus' own clients give them."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        totals = dict.fromkeys(_SUMMED, 0.0)
        totals["process_cpu_seconds"] = ended.ru_utime + ended.ru_stime
        says: dict[str, Family] = {}
        for process in self._alive:
            of_one = ProcessCollector(pid=partial(int, process), registry=None)
            for family in of_one.collect():
                if family.name in _SUMMED:
                    says[family.name] = family
                    totals[family.name] += family.samples[0].value
        for name, family in says.items():
            summed = Family(name, family.documentation, family.type)
            summed.add_sample(_SUMMED[name], {}, totals[name])
            yield summed
