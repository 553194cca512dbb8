"""The programs of ``examples/languages``, built as their headers say and kept between runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

LANGUAGES: Final = Path(__file__).resolve().parents[2] / "examples" / "languages"
_BUILD_SECONDS: Final = 400

Build = Callable[[Path], list[str]]
"""Builds in a copy of the sources; returns the command that runs it, with ``{}`` for that copy."""


def build_go(folder: Path) -> list[str]:
    """A binary; Go keeps what it downloaded and compiled in caches of its own.

    Without C and optimisation a first build, gRPC and all, takes two thirds of the time.
    """
    flags = ("-gcflags=all=-N -l", "-ldflags=-s -w")
    _run(folder, "env", "CGO_ENABLED=0", "go", "build", *flags, "-o", "attempts", ".")
    return ["{}/attempts"]


def build_node(folder: Path) -> list[str]:
    """Beside its modules, which the lock file names."""
    _run(folder, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    return ["node", "{}/attempts.js"]


def build_java(folder: Path) -> list[str]:
    """Classes and jars; compiled once and not at every start."""
    _run(
        *(folder, "mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies"),
        "-DoutputDirectory=lib",
    )
    _run(folder, "javac", "-cp", "lib/*", "-d", "classes", "Attempts.java")
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", "{}/classes:{}/lib/*", "Attempts"]


BUILDS: Final[dict[str, Build]] = {"go": build_go, "node": build_node, "java": build_java}


def built(language: str, kept: Path) -> list[str]:
    """The command that runs the program; built once for each state of what it is made by."""
    sources = sorted(path for path in (LANGUAGES / language).iterdir() if path.is_file())
    parts = [path.read_bytes() for path in (Path(__file__), *sources)]
    state = hashlib.sha256(b"\0".join(parts)).hexdigest()
    made = kept / f"{language}-{state[:16]}"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=kept) as name:
            folder = Path(name) / language
            folder.mkdir()
            for source in sources:
                shutil.copy(source, folder)
            command = BUILDS[language](folder)
            (folder / "command").write_text("\n".join(command))
            folder.replace(made)
    return [part.replace("{}", str(made)) for part in (made / "command").read_text().splitlines()]


def run_language(command: list[str], protocol: str, endpoint: str, key: str) -> str:
    """The run id that the program printed; its exporter is told by the usual variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    env = {
        **clean,
        "OTEL_SERVICE_NAME": "crm-sync",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{key}",
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    first, run_id, rest = done.stdout.partition("handed run ")[2].partition(" ")
    assert (run_id, rest) == (" ", "of crm.sync to the exporter\n"), done.stdout
    return first


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
