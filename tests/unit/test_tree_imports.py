"""The import contracts hold, and each of them can be broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINTER = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]

ILLEGAL = {
    "layers": ("model.py", "from flowmark_otel import fold"),
    "server-half": ("listen/_illegal.py", "from flowmark_otel.deliver import queue"),
    "client-half": ("deliver/_illegal.py", "from flowmark_otel.listen import protocol"),
    "proxy": ("proxy/_illegal.py", "from flowmark_otel.listen import intake"),
    "dashboard": ("dashboard/_illegal.py", "from flowmark_otel.backend.store import schema"),
    "dashboard-database": ("dashboard/_illegal.py", "from sqlalchemy.sql import select"),
    "pure": ("wire/_illegal.py", "from opentelemetry.sdk.trace import ReadableSpan"),
    "base-install": ("fold/_illegal.py", "import click"),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what the linter reads, with a client half that may not be written yet."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("flowmark_otel", "tools"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for module in ("deliver/__init__.py", "deliver/queue.py"):
        path = tmp_path / "flowmark_otel" / module
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


def lint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the linter as `make lint` does."""
    return subprocess.run(
        [*LINTER, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_contracts_hold() -> None:
    """The tree's imports go down only, the halves are apart, pure modules are pure."""
    run = lint(ROOT)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("contract", ILLEGAL)
def test_illegal_import_breaks_its_contract(copy: Path, contract: str) -> None:
    """Each contract is kept before one illegal import and broken by it."""
    module, statement = ILLEGAL[contract]
    before = lint(copy, "--contract", contract)
    assert before.returncode == 0, before.stdout
    path = copy / "flowmark_otel" / module
    with path.open("a") as file:
        file.write(f"\n{statement}\n")
    after = lint(copy, "--contract", contract)
    assert after.returncode == 1, after.stdout
    assert "1 broken" in after.stdout


def test_impurity_is_found_through_others(copy: Path) -> None:
    """A pure module may not reach the clock through an innocent one either."""
    package = copy / "flowmark_otel"
    (package / "fold" / "_illegal.py").write_text("from flowmark_otel import clock\n")
    run = lint(copy, "--contract", "pure")
    assert run.returncode == 1, run.stdout
    assert "flowmark_otel.clock (which flowmark_otel.fold imports) imports time" in " ".join(
        run.stdout.split()
    )


def test_a_new_module_needs_a_place(copy: Path) -> None:
    """A module that no layer names breaks the contract, so none stays outside the rules."""
    (copy / "flowmark_otel" / "helpers.py").touch()
    assert lint(copy, "--contract", "layers").returncode == 1
