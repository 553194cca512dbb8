"""Services under ``opentelemetry-instrument``, started as their headers say, until a test ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.programs import ALL_LOADED, INSTRUMENT, ROOT

EXAMPLES: Final = ROOT / "examples"
_STOP_SECONDS: Final = 30
_QUIET: Final = {
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
}


class Service:
    """A process that says when it serves; ``said`` is all it printed, ``address`` where it is."""

    def __init__(self, process: subprocess.Popen[str], ready: str) -> None:
        assert process.stdout is not None
        self._process = process
        self._output = process.stdout
        self.said: list[str] = []
        self.address = self._wait(re.compile(ready))

    def wait_for(self, line: str) -> None:
        """Read what it prints up to a line that matches; it may have come already."""
        if not any(re.search(line, said) for said in self.said):
            self._wait(re.compile(f"({line})"))

    def stop(self, how: signal.Signals) -> str:
        """End it as a person or a supervisor does; everything that it printed."""
        self._process.send_signal(how)
        self.said.extend(self._output)
        self._process.wait(_STOP_SECONDS)
        return "".join(self.said)

    def _wait(self, ready: re.Pattern[str]) -> str:
        for line in self._output:
            self.said.append(line)
            found = ready.search(line)
            if found:
                return found[1]
        raise AssertionError("".join(self.said))


@contextmanager
def service(
    folder: Path, env: dict[str, str], ready: str, *command: str | Path
) -> Iterator[Service]:
    """A process in a folder; ``ready`` matches the line that says so, its group the address."""
    process = subprocess.Popen(
        [*map(str, command)],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Service(process, ready)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(_STOP_SECONDS)


@contextmanager
def crm() -> Iterator[str]:
    """The CRM of the examples; its address."""
    command = (sys.executable, "crm.py", "--port", "0")
    with service(EXAMPLES, {}, r"CRM on (\S+)", *command) as found:
        yield found.address


def instrumented(env: dict[str, str], crm_url: str, **more: str) -> dict[str, str]:
    """The environment of a service that no stock exporter sends for, and that knows the CRM."""
    return {
        **env,
        **ALL_LOADED,
        **_QUIET,
        "OTEL_SERVICE_NAME": "crm-sync",
        "CRM_URL": crm_url,
        **more,
    }


def module(*arguments: str) -> list[str]:
    """``opentelemetry-instrument`` and a module of the interpreter that runs the tests."""
    return [str(INSTRUMENT), sys.executable, "-m", *arguments]
