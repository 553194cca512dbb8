"""axe-core, the checker of accessibility: installed by npm at a pinned version, kept."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page

from tests.support.web_sdk import run_in

AXE: Final = Path(__file__).resolve().parents[1] / "browser" / "axe"
_SOURCES: Final = ("package.json", "package-lock.json", ".npmrc")
_SERIOUS: Final = ("serious", "critical")


def source(kept: Path) -> str:
    """The script; installed once for each state of its pins, and kept in a folder."""
    state = hashlib.sha256(b"\0".join((AXE / name).read_bytes() for name in _SOURCES)).hexdigest()
    made = kept / f"{state[:16]}.js"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=kept) as name:
            folder = Path(name)
            for pin in _SOURCES:
                shutil.copy(AXE / pin, folder)
            run_in(folder, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
            (folder / "node_modules" / "axe-core" / "axe.min.js").replace(made)
    return made.read_text()


def serious(page: Page, script: str) -> list[str]:
    """What it finds on a page that keeps somebody from using it: rule, place, what is wrong."""
    page.evaluate(script)
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['target']}: {node.get('failureSummary', '')}"
        for violation in found["violations"]
        if violation["impact"] in _SERIOUS
        for node in violation["nodes"]
    ]
