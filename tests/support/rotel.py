"""Rotel as it comes from PyPI, on free ports; ended by its id."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.answers import free_port
from tests.support.ports import listening

ROOT: Final = Path(__file__).resolve().parents[2]
PROCESSOR: Final = ROOT / "collector" / "rotel" / "processor.py"
LIBRARY: Final = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
"""What the agent is linked to: of the system, not of an environment."""

_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 30


def missing() -> str:
    """Why Rotel cannot be run here; empty if it can."""
    if importlib.util.find_spec("rotel") is None:
        return "rotel is not installed: its releases are for Linux on x86_64 alone"
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return f"needs {LIBRARY}; as root, `make deps` installs it"
    return ""


class Rotel(NamedTuple):
    """A running one: where it listens, ``HOST:PORT``."""

    grpc: str
    http: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(_STOP_SECONDS)


@contextmanager
def running(into: str, folder: Path, *, processor: Path | None = None) -> Iterator[Rotel]:
    """Rotel, forwarding to ``into`` over HTTP; what it says is in ``rotel.log`` of the folder."""
    spec = importlib.util.find_spec("rotel")
    assert spec is not None
    assert spec.origin is not None
    agent = Path(spec.origin).with_name("rotel-agent")
    grpc, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        *(str(agent), "start", "--pid-file", str(folder / "rotel.pid")),
        *("--otlp-grpc-endpoint", grpc, "--otlp-http-endpoint", http),
        *("--exporter", "otlp", "--otlp-exporter-protocol", "http"),
        *("--otlp-exporter-endpoint", f"http://{into}"),
    ]
    if processor is not None:
        command += ["--otlp-with-trace-processor", str(processor)]
    packages = dict.fromkeys((str(ROOT), *map(sysconfig.get_path, ("purelib", "platlib"))))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(packages)}
    log = folder / "rotel.log"
    with (
        log.open("ab") as output,
        subprocess.Popen(command, env=env, stdout=output, stderr=output) as process,
    ):
        try:
            assert listening(process, (grpc, http), _START_SECONDS), log.read_text()
            yield Rotel(grpc, http, process)
            process.terminate()
            process.wait(_STOP_SECONDS)
        finally:
            process.kill()
