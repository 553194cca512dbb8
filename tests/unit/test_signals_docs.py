"""What is read of other conventions is documented from the table that reads it."""

from __future__ import annotations

from flowmark_otel.signals import SAFE
from tests.support.signal_table import PAGE, tables, written


def test_the_tables_of_the_documentation_are_those_of_the_code() -> None:
    """Section 8: every mapping with its base; ``tests.support.signal_table`` writes them anew."""
    page = PAGE.read_text("utf-8")
    assert written(page) == page
    for lines in tables().values():
        assert "\n".join(lines) in page


def test_safe_is_marked_there() -> None:
    """Section 8: which mappings are safe is told, and what keeps the others from it."""
    rows = tables()["attempts"][2:]
    assert tuple(row.split("`")[1] for row in rows if row.endswith("| yes |")) == SAFE
    assert all("| no: " in row for row in rows if not row.endswith("| yes |"))
