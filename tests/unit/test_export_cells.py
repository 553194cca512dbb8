"""Events as CSV: what came from outside is never a formula, and nothing of it is lost."""

from __future__ import annotations

import csv
import io

from hypothesis import given, strategies as st

from flowmark_otel.backend.views import cell
from flowmark_otel.commands.cells import COLUMNS, csv_lines

FORMULAS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


@given(st.sampled_from(FORMULAS), st.text(max_size=20))
def test_no_cell_begins_like_a_formula(begin: str, rest: str) -> None:
    """Security: a cell that a spreadsheet would run gets an apostrophe in front."""
    assert cell(begin + rest) == f"'{begin}{rest}"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_what_is_written_is_read_back(text: str) -> None:
    """Export: separators, quotes and line ends within a value stay within its cell."""
    lines = list(csv_lines([{"message": text, "attributes": {"k": text}, "sender": {}}]))
    names, row = csv.reader(io.StringIO("\r\n".join(lines), newline=""))
    assert tuple(names) == COLUMNS
    assert row[COLUMNS.index("message")] == cell(text)
    assert len(row) == len(COLUMNS)


def test_the_sender_stands_among_the_columns() -> None:
    """Export: what is said of the sender has columns of its own, unknown is empty."""
    sender = {"user_agent": "=cmd()", "service_name": None}
    (_, line) = csv_lines([{"state": "stored", "sender": sender, "dropped_attributes": 0}])
    row = dict(zip(COLUMNS, next(csv.reader([line])), strict=True))
    assert (row["user_agent"], row["service_name"]) == ("'=cmd()", "")
    assert (row["state"], row["dropped_attributes"], row["digest"]) == ("stored", "0", "")
