"""The fault matrix as pytest sees it: which tests show which row, and what they showed.

A test belongs to the rows that its docstring names ("row 6", "rows 4 and 5", "rows 16 to 19"), and
to the invariants ("I1"). ``--faults FILE`` runs those tests alone, ends with the matrix as a table
and writes it as JSON; ``--long`` makes campaigns as long as they are meant to be by hand.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

FAULTS: Final = {
    1: "backend killed",
    2: "collector or application with a spool killed",
    3: "stock hop with queued data killed",
    4: "disk full",
    5: "fsync or write fails",
    6: "PostgreSQL stopped, restarted, terminated",
    7: "store locked or slow",
    8: "latency, low bandwidth",
    9: "reset inside a body or an answer",
    10: "peer half-open or stopped",
    11: "duplicates, also concurrent",
    12: "any order",
    13: "same id, other payload",
    14: "clocks",
    15: "slow head, slow body, stalled stream",
    16: "gzip bomb, corrupt gzip, unknown encoding",
    17: "amplification",
    18: "malformed protobuf",
    19: "wrong type, method, path, lengths",
    20: "invalid UTF-8, NUL, surrogates",
    21: "nesting, digits, NaN, duplicate keys",
    22: "no key, wrong, revoked, another project's",
    23: "backend without the capability",
    24: "middlebox that strips or answers",
    25: "overload",
    26: "SIGTERM, fork, exit",
    27: "corrupt page, torn tail, other schema",
}
"""The rows of the matrix, in short."""
INVARIANTS: Final = range(1, 10)

_ROWS: Final = re.compile(r"\brows? (\d+(?:(?:, | and | to )\d+)*)", re.IGNORECASE)
_INVARIANT: Final = re.compile(r"\bI([1-9])\b(?: to I([1-9])\b)?")
_RANGE: Final = re.compile(r"(\d+) to (\d+)")
_ROW, _LAW = "fault-rows", "fault-invariants"


def rows_of(docstring: str | None) -> set[int]:
    """The rows that a docstring names."""
    found: set[int] = set()
    for named in _ROWS.findall(docstring or ""):
        for first, last in _RANGE.findall(named):
            found.update(range(int(first), int(last) + 1))
        found.update(int(each) for each in re.findall(r"\d+", named))
    return found & FAULTS.keys()


def invariants_of(docstring: str | None) -> set[int]:
    """The invariants that a docstring names."""
    found: set[int] = set()
    for first, last in _INVARIANT.findall(docstring or ""):
        found.update(range(int(first), int(last or first) + 1))
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two options."""
    group = parser.getgroup("faults")
    group.addoption("--faults", type=Path, metavar="FILE", help="the fault matrix alone; as JSON")
    group.addoption("--long", action="store_true", help="campaigns of their full length")


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """How often something is to be done: ``campaign(20, 200)`` is 200 with ``--long``, else 20."""
    is_long = bool(request.config.getoption("--long"))
    return lambda short, long: long if is_long else short


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note what each test shows; with ``--faults`` leave the others out."""
    kept: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        docstring = getattr(getattr(item, "function", None), "__doc__", None)
        rows, laws = rows_of(docstring), invariants_of(docstring)
        if rows or laws:
            item.user_properties += [(_ROW, sorted(rows)), (_LAW, sorted(laws))]
        (kept if rows or laws else others).append(item)
    if config.getoption("--faults"):
        config.hook.pytest_deselected(items=others)
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with the matrix where it was asked for."""
    where: Path | None = terminalreporter.config.getoption("--faults")
    if where is None:
        return
    rows = [_line(number, text, _ROW, terminalreporter) for number, text in FAULTS.items()]
    laws = [_line(number, f"I{number}", _LAW, terminalreporter) for number in INVARIANTS]
    where.write_text(json.dumps({"rows": rows, "invariants": laws}, indent=1) + "\n", "utf-8")
    terminalreporter.section("fault matrix")
    for line in (*rows, *laws):
        terminalreporter.write_line(
            f"{line['number']:>2}  {line['fault']:<45} {line['result']:<10}"
            f" {line['passed']:>4} passed {line['seconds']:>7.1f} s"
        )


def _line(number: int, text: str, key: str, reporter: pytest.TerminalReporter) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    seconds = 0.0
    for kind, report in _reports(reporter):
        if number in _noted(report, key):
            counts[kind] += 1
            seconds += report.duration
    result = "not shown"
    if counts["failed"] or counts["error"]:
        result = "failed"
    elif counts["skipped"]:
        result = "in part"
    elif counts["passed"]:
        result = "holds"
    return {
        "number": number,
        "fault": text,
        "result": result,
        **{kind: counts[kind] for kind in ("passed", "failed", "error", "skipped")},
        "seconds": round(seconds, 1),
    }


def _reports(reporter: pytest.TerminalReporter) -> Iterator[tuple[str, pytest.TestReport]]:
    for kind in ("passed", "failed", "error", "skipped"):
        for report in reporter.stats.get(kind, []):
            if isinstance(report, pytest.TestReport):
                yield kind, report


def _noted(report: pytest.TestReport, key: str) -> list[int]:
    return next(
        (cast("list[int]", found) for name, found in report.user_properties if name == key), []
    )
