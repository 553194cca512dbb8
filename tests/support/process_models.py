"""Programs and servers whose ends are tested: started for real, before a gate that is shut."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import requests

from tests.support.answers import free_port
from tests.support.chaos import Chaos, chaos
from tests.support.process_apps import HOOKS
from tests.support.programs import Recorded, environment
from tests.support.serving import Serving

APPS: Final = Path(__file__).with_name("process_apps")
BIN: Final = Path(sys.executable).parent
WAIT: Final = 40.0
_LOOK: Final = 0.02


class Started:
    """A process group whose events meet a shut gate, until it is opened.

    ``workflow`` names its runs. Its standard output and error are in one log.
    """

    def __init__(self, command: Sequence[str], folder: Path, gate: Chaos, serving: Serving) -> None:
        self._command = command
        self._folder = folder
        self._serving = serving
        self._log = folder / "log"
        self.gate = gate
        self.workflow = f"{folder.parent.name}.{folder.name}"

    def start(self, **more: str) -> None:
        """Start it, with these variables."""
        env = environment(self._folder, self._serving, **more)
        env["FLOWMARK_ENDPOINT"] = f"http://{self.gate.address}"
        env["RECORD_WORKFLOW"] = self.workflow
        env["RECORD_GO"] = str(self._folder / "go")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command,
                env=env,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def read(self) -> str:
        """What it has printed so far."""
        return self._log.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until it has printed a text so often."""
        end = time.monotonic() + WAIT
        while self.read().count(text) < times:
            assert time.monotonic() < end, self.read()
            assert self.process.poll() is None or self.read().count(text) >= times, self.read()
            time.sleep(_LOOK)

    def open(self) -> None:
        """Let its events pass from now on, and its exit hooks go on."""
        self.gate.settle()  # what met it shut is not to pass
        self.gate.redirect(self._serving.http)
        (self._folder / "go").touch()

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        return self.process.wait(WAIT)

    def signal(self, number: signal.Signals) -> None:
        """Send the first process of the group a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL for the whole group."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT)

    def recorded(self) -> list[str]:
        """The ids of the runs a backend has of it, each with one attempt that completed."""
        found = Recorded(self._serving)
        runs = found.runs(workflow=self.workflow)
        for run in runs:
            assert found.attempts(run) == [("push", "batch", 1, "completed", None)]
        return sorted(run["run_id"] for run in runs)

    def hooks(self) -> int:
        """How many of its processes said that they run exit hooks."""
        return self.read().count(HOOKS)


@contextmanager
def starting(
    command: Sequence[str], folder: Path, serving: Serving, **env: str
) -> Iterator[Started]:
    """A program, ended with all of its processes at the end of the block."""
    folder.mkdir()
    with ExitStack() as stack:
        gate = stack.enter_context(chaos(f"127.0.0.1:{free_port()}"))
        made = Started(command, folder, gate, serving)
        made.start(**env)
        try:
            yield made
        finally:
            if made.process.poll() is None:
                made.kill()
            if made.process.stdin is not None:
                made.process.stdin.close()


class Web:
    """The service of ``process_apps.web`` in some server, at a port."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"

    def ready(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + WAIT
        while not self._answers():
            assert time.monotonic() < end, "no server"
            time.sleep(_LOOK)

    def ask(self, run_id: str) -> str:
        """Have a run recorded; gives the process that did."""
        answer = requests.get(f"{self.base}/{run_id}", timeout=WAIT)
        assert answer.ok, answer.text
        return answer.text

    def _answers(self) -> bool:
        try:
            self.ask("ready")
        except requests.ConnectionError:
            return False
        return True


def deliver(spool: Path, folder: Path, serving: Serving) -> None:
    """Run one more process with a spool, as whoever starts the service again does."""
    program = "import flowmark_otel as f; f.workflow('next').done(); f.shutdown(timeout=30)"
    env = environment(folder, serving, FLOWMARK_SPOOL_DIR=str(spool))
    subprocess.run([sys.executable, "-c", program], env=env, timeout=WAIT, check=True)
