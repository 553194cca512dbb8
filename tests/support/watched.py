"""Programs that Prometheus watches: first all is well, then something is wrong with each.

An application records through a collector into a backend, and begins to be refused by its other
side. A stranger's backend does not acknowledge attempts. A collector on a spool, whose backend
takes nothing, finds what another process left there twenty minutes ago, and is sent what is
invalid until its failure budget is spent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from flowmark_otel import names
from flowmark_otel.clock import SystemClock
from flowmark_otel.deliver.spool import Spool, codec
from tests.support import collecting
from tests.support.answers import Reply, answering, free_port
from tests.support.delivering import RESOURCE, attempts
from tests.support.fleet import Fleet, until
from tests.support.payloads import JSON, as_json, request, span
from tests.support.prometheus import scraping, shortened
from tests.support.serving import Asking, Serving

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "deploy" / "prometheus" / "alerts.yaml"
BACKEND, COLLECTOR, APPLICATION = "backend", "collector", "application"
"""The jobs, as the dashboard's variables are named."""

WORKFLOW: Final = "crm.sync"
_LEFT_BEFORE: Final = 20 * 60 * 10**9
_INVALID: Final = 4
_BUDGET: Final = {"max_failures": 2, "window_ms": 600_000}
_SECONDS: Final = 60.0


class Before(SystemClock):
    """The machine's clock as it was twenty minutes ago."""

    def now_ns(self) -> int:
        """Epoch nanoseconds of then."""
        return super().now_ns() - _LEFT_BEFORE


class Watched:
    """The programs, started; each is ended with the block that ``stack`` is of.

    ``spooling`` is where the collector of the trouble shows its metrics, ``stranger`` where the
    application of a backend that does not acknowledge does.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        own, self.spooling, crm, self.stranger = (f"127.0.0.1:{free_port()}" for _ in range(4))
        backend = stack.enter_context(Fleet(folder / "s.db", "--insecure-no-auth"))
        collector = self._collect("own", own, endpoint=backend.endpoint)
        self._crm = self._apply(
            crm, WORKFLOW, collector.http, FLOWMARK_SPOOL_DIR=str(folder / "spool")
        )
        rules = folder / "alerts.yaml"
        rules.write_text(shortened(RULES.read_text("utf-8")), encoding="utf-8")
        jobs = {
            BACKEND: [backend.metrics],
            COLLECTOR: [own, self.spooling],
            APPLICATION: [crm, self.stranger],
        }
        self.prometheus = stack.enter_context(scraping(folder, jobs, rules))

    def wait_for_history(self) -> None:
        """Until there is something that the latest quarter of an hour can be compared with."""
        until(lambda: self.prometheus.query("flowmark:attempts:rate5m offset 12s"), _SECONDS)

    def begin_trouble(self) -> None:
        """Let everything go wrong from now on."""
        assert self._crm.stdin is not None
        self._crm.stdin.write(b"trouble\n")
        self._crm.stdin.flush()
        enter = self._stack.enter_context
        stock = ("--insecure-no-auth", "--without", names.CAPABILITY)
        unheard = enter(Serving(self._folder / "other.db", *stock))
        self._apply(self.stranger, "billing.sync", unheard.http)
        custody = self._folder / "custody"
        _leave_behind(custody)
        collector = self._collect(
            "spooling",
            self.spooling,
            endpoint=enter(answering(collecting.capable(Reply(503)))).endpoint,
            spool=custody,
            letters=self._folder / "letters.jsonl",
            fold={"failure_budget": _BUDGET},
        )
        wrong = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: "two"}
        for number in range(1, _INVALID + 1):
            Asking(collector.http).post("traces", as_json(request([span(number, wrong)])), JSON)

    def _collect(self, name: str, telemetry: str, **how: Any) -> collecting.Process:
        """A collector with its telemetry there."""
        folder = self._folder / name
        folder.mkdir()
        config = collecting.configuration(**how)
        config["service"]["telemetry"] = {"metrics": {"address": telemetry}}
        return self._stack.enter_context(collecting.process(config, folder))

    def _apply(
        self, metrics: str, workflow: str, http: str, **more: str
    ) -> subprocess.Popen[bytes]:
        """An application that sends to an address, and shows its metrics at another."""
        env = {**os.environ, "FLOWMARK_ENDPOINT": f"http://{http}", **more}
        port = metrics.rpartition(":")[2]
        command = (sys.executable, "-m", "tests.support.retrying_app", port, workflow)
        started = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE)
        self._stack.callback(_end, started)
        return started


def _end(process: subprocess.Popen[bytes]) -> None:
    """As it ends by itself when nobody tells it anything any more."""
    try:
        process.communicate(timeout=_SECONDS)
    finally:
        process.kill()


def _leave_behind(custody: Path) -> None:
    """What a collector that ended twenty minutes ago had in custody."""
    spool = Spool(custody, clock=Before(), report=print)
    resource = codec.encode_resource(RESOURCE)
    spool.append([resource + codec.encode_envelope(event) for event in attempts(1, 1)])
    spool.sync()
    spool.close()


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    """All of them while all is well, until ``begin_trouble``."""
    with ExitStack() as stack:
        yield Watched(folder, stack)
