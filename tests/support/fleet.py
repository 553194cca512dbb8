"""What a test asks of ``serve`` beside its answers: its workers, its log, its metrics."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.support.serving import Serving
from tests.support.urls import Place

Found = TypeVar("Found")

DEADLINE: Final = 30.0
_TURN: Final = 0.02


def until(look: Callable[[], Found], seconds: float = DEADLINE) -> Found:
    """What ``look`` finds once it finds something; fails after the deadline."""
    ends = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < ends, f"not within {seconds} seconds"
        threading.Event().wait(_TURN)


def alive(process: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text("ascii")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] not in {"Z", "X"}


def children(process: int) -> list[int]:
    """The process ids of what a process started itself."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text("ascii")
    return [int(each) for each in found.split()]


class Fleet(Serving):
    """``serve`` with ``--metrics``, and whatever other arguments."""

    def __init__(
        self,
        store: Place,
        *arguments: str,
        under: Sequence[str] = (),
        errors: Path | None = None,
    ) -> None:
        super().__init__(store, "--metrics", "127.0.0.1:0", *arguments, under=under, errors=errors)

    @property
    def metrics(self) -> str:
        """``HOST:PORT`` of the metrics."""
        [line] = [line for line in self.lines if line.startswith("Metrics at ")]
        return line.removeprefix("Metrics at http://").removesuffix("/metrics")

    def workers(self) -> list[int]:
        """The process ids of what the supervisor started."""
        return children(self.process.pid)

    def page(self) -> str:
        """The metrics page."""
        return requests.get(f"http://{self.metrics}/metrics", timeout=DEADLINE).text

    def samples(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """The page's values, by name and the values of the labels sorted by label."""
        return {
            (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.page())
            for sample in family.samples
        }

    def said(self, event: str) -> list[dict[str, Any]]:
        """The log's lines of one event; fails where a line is no JSON."""
        return [line for line in self.log() if line["event"] == event]

    def log(self) -> Iterator[dict[str, Any]]:
        """All lines of the log."""
        return map(json.loads, self._errors.read_text("utf-8").splitlines())

    def asked(self, path: str, *, metrics: bool = False) -> requests.Response:
        """The answer to a GET, on a connection of its own."""
        address = self.metrics if metrics else self.http
        return requests.get(f"http://{address}{path}", timeout=DEADLINE)
