"""What a benchmark says: figures, and the targets they are held against."""

from __future__ import annotations

import json
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure; ``least`` or ``most`` is its target, if it has one."""

    name: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.least is not None:
            return self.value >= self.least
        return None if self.most is None else self.value <= self.most

    @property
    def target(self) -> str:
        """The target in words."""
        if self.least is not None:
            return f"at least {self.least:g}"
        return "" if self.most is None else f"at most {self.most:g}"


def show(figures: Sequence[Figure], out: Path | None) -> bool:
    """Print the table, write the JSON; whether every target is met."""
    table = Table("Figure", "Value", "Unit", "Target", "Met", "Note")
    for figure in figures:
        met = {True: "yes", False: "NO", None: ""}[figure.holds]
        value = f"{figure.value:,.3g}" if figure.value < 1000 else f"{figure.value:,.0f}"
        table.add_row(figure.name, value, figure.unit, figure.target, met, figure.note)
    Console(width=140).print(table)
    if out is not None:
        document = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "sqlite": sqlite3.sqlite_version,
            "figures": [
                {**asdict(figure), "target": figure.target, "met": figure.holds}
                for figure in figures
            ],
        }
        out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return all(figure.holds is not False for figure in figures)
