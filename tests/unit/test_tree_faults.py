"""The fault matrix is shown by tests, row by row."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.fault_table import FAULTS, INVARIANTS, invariants_of, rows_of

TESTS = Path(__file__).parents[1]


def docstrings() -> list[str]:
    """Of every test function of the tree."""
    return [
        ast.get_docstring(node) or ""
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]


def test_docstrings_name_rows() -> None:
    """Rows are read as people write them."""
    assert rows_of("Fault row 6: it holds.") == {6}
    assert rows_of("A8 (rows 1, 2 and 4): it holds; row 99 is none.") == {1, 2, 4}
    assert rows_of("Rows 16 to 19: refused.") == {16, 17, 18, 19}
    assert rows_of("One row an event id, 7 rows a page.") == set()
    assert invariants_of("Row 1, I1 and I2 to I4: it holds.") == {1, 2, 3, 4}


def test_every_row_has_a_test() -> None:
    """Every row of the matrix, and every invariant, is named by a test that shows it."""
    every = docstrings()
    assert set().union(*map(rows_of, every)) == FAULTS.keys()
    assert set().union(*map(invariants_of, every)) == set(INVARIANTS)
