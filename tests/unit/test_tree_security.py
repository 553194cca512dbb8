"""SECURITY.md is true: every threat has a defence, and every defence tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TEXT: Final = (ROOT / "SECURITY.md").read_text("utf-8")
THREATS: Final = (
    *("crossing projects", "stored script in telemetry", "forged requests", "keys"),
    *("browser keys", "CORS", "injection into search", "paths", "secrets in attributes"),
    *("log and CSV injection", "exposure"),
)


def rows() -> dict[str, str]:
    """What shows each defence, by threat."""
    table = TEXT.partition("| threat | defence | shown by |\n|---|---|---|\n")[2]
    cells = [line.strip("| ").split(" | ") for line in table.partition("\n\n")[0].splitlines()]
    return {threat: shown for threat, _, shown in cells}


def named_tests(path: Path) -> dict[str, str]:
    """Docstrings of a file's tests, by name."""
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_threat_has_its_tests() -> None:
    """Security: the table has all threats, and each of its rows names tests of the tree."""
    found = rows()
    assert tuple(found) == THREATS
    missing = []
    for threat, shown in found.items():
        for named in shown.split(" · "):
            path, *tests = re.findall(r"`([^`]+)`", named)
            assert tests, (threat, named)
            known = named_tests(ROOT / path)
            missing += [f"{path}::{test}" for test in tests if not known.get(test)]
    assert missing == []


def test_the_page_says_what_is_not_defended() -> None:
    """Security: how to report, which versions, who reaches what, and what nothing is done about."""
    for needed in (
        "## Reporting",
        "newest release",
        "**Who can reach what.**",
        "**Not defended.**",
    ):
        assert needed in TEXT
