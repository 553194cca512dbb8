"""The notebook example, run as a person runs it: cell by cell, in a kernel of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest
from nbclient import NotebookClient

ROOT: Final = Path(__file__).parents[2]
NOTEBOOK: Final = ROOT / "examples" / "notebook" / "attempts.ipynb"

pytestmark = pytest.mark.timeout(120)  # a kernel and a backend start


def read() -> nbformat.NotebookNode:
    """The notebook as it is kept."""
    found: nbformat.NotebookNode = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    return found


def executed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """The outputs of each cell, by its id."""
    for name in [name for name in os.environ if name.startswith(("FLOWMARK_", "OTEL_"))]:
        monkeypatch.delenv(name)
    notebook = read()
    client = NotebookClient(
        notebook,
        timeout=60,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT)}},
    )
    client.execute()
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def test_notebook_records_flushes_and_shows_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A26: recording works cell by cell, also under the kernel's loop, and the run can be read."""
    outputs = executed(monkeypatch)
    [shown] = outputs["show-run"]
    assert shown["data"]["text/markdown"] == (
        "**crm.sync** completed, 6 imported\n"
        "\n"
        "| operation | group | attempt | status | error |\n"
        "|---|---|---|---|---|\n"
        "| push-to-crm | batch-41 | 1 of 3 | completed |  |\n"
        "| push-to-crm | batch-42 | 1 of 3 | failed | CRM_UNAVAILABLE |\n"
        "| push-to-crm | batch-42 | 2 of 3 | completed |  |"
    )
    [confirmed] = outputs["record-async"]
    assert confirmed["data"]["text/plain"] == "'6 imported'"
    assert outputs["flush-it"] == []


def test_notebook_is_kept_without_outputs() -> None:
    """Examples: what the notebook shows is what a run of it gives, never a stored output."""
    notebook = read()
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
