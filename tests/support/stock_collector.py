"""The stock OpenTelemetry Collector of ``collector/otelcol``: built once, run on free ports."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.answers import free_port
from tests.support.ports import listening

FOLDER: Final = Path(__file__).resolve().parents[2] / "collector" / "otelcol"
_BUILD_SECONDS: Final = 900
_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 30


def build(kept: Path) -> Path:
    """The binary, as the README of the folder builds it; one for each state of its sources."""
    sources = [FOLDER / name for name in ("go.mod", "go.sum", "main.go")]
    state = hashlib.sha256(b"\0".join(each.read_bytes() for each in sources)).hexdigest()
    made = kept / f"otelcol-{state[:16]}"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=kept) as name:
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
    return made


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
def running(binary: Path, config: str, into: str, folder: Path) -> Iterator[Stock]:
    """``otelcol`` with a configuration of the folder, forwarding to ``into``; ended by its id.

    What it keeps on disk is in ``folder``, so that the next one finds it.
    """
    grpc, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    env = {
        **os.environ,
        "OTELCOL_GRPC": grpc,
        "OTELCOL_HTTP": http,
        "OTELCOL_NEXT": into,
        "OTELCOL_STORAGE": str(folder / "storage"),
    }
    command = [str(binary), "--config", str(FOLDER / config)]
    log = folder / "otelcol.log"
    with log.open("ab") as output, subprocess.Popen(command, env=env, stderr=output) as process:
        try:
            assert listening(process, (grpc, http), _START_SECONDS), log.read_text()
            yield Stock(grpc, http, process)
            process.terminate()
            process.wait(_STOP_SECONDS)
        finally:
            process.kill()
