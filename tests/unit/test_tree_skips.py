"""A skipped test is named with its reason, and fails the run in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEST = """
import pytest

@pytest.mark.needs("no-such-program")
def test_needing():
    raise SystemExit

@pytest.mark.needs("python3")
def test_had():
    pass
"""


def run(folder: Path, ci: str) -> subprocess.CompletedProcess[str]:
    """Run two tests under the tree's rules, one of which needs a program that nobody has."""
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_two.py").write_text(TEST)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", ".", "."],
        cwd=folder,
        env=os.environ | {"CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_program_skips_its_tests_by_name(tmp_path: Path) -> None:
    """A test is skipped only where its program is missing, and the run ends with the reason."""
    done = run(tmp_path, ci="")
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    assert "test_two.py::test_needing: needs no-such-program" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can install what is missing")
def test_a_skip_fails_in_ci(tmp_path: Path) -> None:
    """In CI, as root, nothing is skipped unseen: the run fails."""
    done = run(tmp_path, ci="true")
    assert done.returncode == 1, done.stdout
    assert "a skipped test is a failure" in done.stdout
