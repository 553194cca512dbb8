"""The page about processes is true: its rows name the tests that prove them, its code is code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "processes.md").read_text()
TESTS = ROOT / "tests" / "integration" / "process_models"


def test_each_row_names_the_test_that_proves_it() -> None:
    """A26: the last cell of each row is a test module, and no module is without a row."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {len(row) for row in rows} == {5}
    named = {row[-1].strip("`") for row in rows[1:]}
    assert named == {path.stem for path in TESTS.glob("test_*.py")}


def test_each_server_that_is_tested_has_a_row() -> None:
    """A26: what the tests start is on the page, and the other way round."""
    for name in ("gunicorn", "gthread", "--preload", "uvicorn", "--workers", "uWSGI", "gevent"):
        assert name in PAGE
    for option in ("--py-call-uwsgi-fork-hooks", "--enable-threads", "worker_process_shutdown"):
        sources = [*TESTS.glob("*.py"), *(ROOT / "tests/support/process_apps").glob("*.py")]
        assert option in PAGE
        assert any(option in path.read_text() for path in sources)


def test_the_code_is_code() -> None:
    """A26: each block of Python on the page can be compiled."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        compile(block, "docs/processes.md", "exec")


def test_the_readme_leads_there() -> None:
    """A26: the page is linked from the README."""
    assert "(docs/processes.md)" in (ROOT / "README.md").read_text()
