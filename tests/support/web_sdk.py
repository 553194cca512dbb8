"""A page with the stock OpenTelemetry web SDK: installed by npm, bundled by esbuild, kept."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

WEB: Final = Path(__file__).resolve().parents[1] / "browser" / "web"
_SOURCES: Final = ("package.json", "package-lock.json", ".npmrc", "page.js")
_SECONDS: Final = 240
HTML: Final = "<!doctype html><title>Shop</title><script src=/page.js></script><h1>Shop</h1>"


def bundle(kept: Path) -> str:
    """The script of the page; made once for each state of its sources, and kept in a folder."""
    state = hashlib.sha256(b"\0".join((WEB / name).read_bytes() for name in _SOURCES)).hexdigest()
    made = kept / f"{state[:16]}.js"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=kept) as name:
            folder = Path(name)
            for source in _SOURCES:
                shutil.copy(WEB / source, folder)
            run_in(folder, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
            run_in(
                *(folder, str(folder / "node_modules" / ".bin" / "esbuild"), "page.js"),
                *("--bundle", "--format=iife", "--outfile=bundle.js", "--log-level=warning"),
            )
            (folder / "bundle.js").replace(made)
    return made.read_text()


def run_in(folder: Path, *command: str) -> None:
    """Run a command in a folder; fails with what it said."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
