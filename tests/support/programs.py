"""Programs as people write them, run in a process of their own, and what a backend has of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.support.serving import Serving

ROOT: Final = Path(__file__).resolve().parents[2]
NOT_LOADED: Final = {
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "asgi,celery,django,fastapi,flowmark_celery"
}
"""What programs without these frameworks need not load: it takes longer than they do."""

ALL_LOADED: Final = dict.fromkeys(NOT_LOADED, "")
"""For programs that use one of them."""

INSTRUMENT: Final = Path(sys.executable).with_name("opentelemetry-instrument")


def environment(folder: Path, backend: Serving | None, **more: str) -> dict[str, str]:
    """The environment of a program: where to send, and our entry points as installed.

    The tree is importable and its entry points are found whether it is installed or not:
    ``folder`` gets the metadata that an installation would have written.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "FLOWMARK_"))
    }
    own |= NOT_LOADED
    own["PYTHONPATH"] = entry_points_of(folder)
    if backend is not None:
        own["FLOWMARK_ENDPOINT"] = backend.endpoint
        own["FLOWMARK_API_KEY"] = backend.keys[0]
    return {**own, **more}


def entry_points_of(folder: Path) -> str:
    """The path on which this tree is importable, and its entry points are found (``folder``)."""
    return os.pathsep.join([str(_installed(folder)), str(ROOT)])


def run(
    folder: Path,
    program: str,
    env: dict[str, str],
    *before: str | Path,
    check: bool = True,
    timeout: float = 50,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; ``before`` is what stands before ``python`` on the command line."""
    path = folder / "program.py"
    path.write_text(program)
    done = subprocess.run(
        [*map(str, before), sys.executable, str(path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


class Recorded:
    """What a backend with keys has recorded."""

    def __init__(self, backend: Serving) -> None:
        self._backend = backend

    def runs(self, **query: str) -> list[dict[str, Any]]:
        """The runs that match, newest first."""
        found: list[dict[str, Any]] = self._backend.get("/runs", self._backend.keys[1], **query)[
            "items"
        ]
        return found

    def attempts(self, run: dict[str, Any]) -> list[tuple[str, str, int, str, str | None]]:
        """Operation, group, number, status and error code of each attempt of a run."""
        path = f"/runs/{run['key']}/attempts"
        return [
            (
                group["operation"],
                group["group_id"],
                attempt["number"],
                attempt["status"],
                attempt["error"]["code"] if attempt["error"] else None,
            )
            for group in self._backend.get(path, self._backend.keys[1])["items"]
            for attempt in group["attempts"]
        ]

    def operations(self, run: dict[str, Any]) -> list[tuple[str, str]]:
        """Name and status of each occurrence of a run."""
        path = f"/runs/{run['key']}/operations"
        items = self._backend.get(path, self._backend.keys[1])["items"]
        return [(item["operation"], item["status"]) for item in items]


def _installed(folder: Path) -> Path:
    """A folder with the metadata of an installation: name, version and entry points."""
    text = (ROOT / "pyproject.toml").read_text()
    info = folder / "installed" / "flowmark_otel-0.0.0.dist-info"
    if not info.exists():
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flowmark-otel\nVersion: 0\n")
        tables = re.findall(
            r'^\[project\.entry-points\.(\w+)\]\n((?:^\w+ = "[^"]+"\n)+)', text, re.MULTILINE
        )
        lines = [f"[{group}]\n{entries.replace(chr(34), '')}" for group, entries in tables]
        (info / "entry_points.txt").write_text("\n".join(lines))
    return info.parent
