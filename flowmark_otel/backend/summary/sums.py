"""Differences of sums, gathered for one transaction and then added to the cells of each level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, bindparam, delete
from sqlalchemy.dialects import postgresql, sqlite

from flowmark_otel.backend.store import derived
from flowmark_otel.backend.summary.folding import Term
from flowmark_otel.backend.summary.ids import Ids, Series
from flowmark_otel.backend.summary.spans import LEVELS, SECOND
from flowmark_otel.backend.summary.stored import Kept
from flowmark_otel.fold.rates import Tally

SIZE: Final = "size"
ERROR: Final = "error"
_Cell: TypeAlias = tuple[int, Series]
_Key: TypeAlias = tuple[int, int, int]
"""Series, level, start."""
_INSERT: Final[Mapping[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_KEY: Final = ("series", "level", "start")
_VALUE: Final = (*_KEY, "kind", "value")


class Sums:
    """The differences of one project: by minute first, larger cells follow from those."""

    def __init__(self, project_id: int) -> None:
        self._project_id = project_id
        self._tallies: dict[_Cell, Tally] = {}
        self._values: dict[_Cell, Counter[Term]] = {}

    def add(
        self,
        time: int,
        origin: str,
        workflow: str,
        tallies: Mapping[str, Tally],
        values: Iterable[Term],
        times: int = 1,
    ) -> None:
        """Count one run, first received at ``time``; with ``times`` -1 no longer."""
        minute = time // LEVELS[0] * LEVELS[0]
        whole = (minute, (origin, "", ""))
        for operation, tally in tallies.items():
            for cell in ((minute, (origin, workflow, operation)), whole):
                self._tallies.setdefault(cell, Tally()).add(tally, times)
        counted = self._values.setdefault(whole, Counter())
        for value in values:
            counted[value] += times

    def take(self, run: Kept) -> None:
        """Count a run no longer, as it was kept."""
        self.add(run.first_received_at, run.origin, run.workflow, run.tallies, run.values, -1)

    def series(self, connection: Connection, ids: Ids) -> set[int]:
        """The series that there are differences of, by id."""
        named = {series for _, series in (*self._tallies, *self._values)}
        return {ids.series(connection, self._project_id, series) for series in named}

    def write(self, connection: Connection, ids: Ids) -> None:
        """Add all differences to what is stored."""
        rows: dict[_Key, Counter[str]] = {}
        values: dict[_Key, Counter[Term]] = {}
        for (minute, series), tally in self._tallies.items():
            number = ids.series(connection, self._project_id, series)
            sums = _sums(tally)
            for level, length in enumerate(LEVELS):
                key = (number, level, minute // length * length)
                cell = rows.setdefault(key, Counter())
                for name, value in sums.items():
                    cell[name] += value
                # Of the series of all runs these would be as many as of all others together.
                if series[1]:
                    for size, times in tally.sizes.items():
                        values.setdefault(key, Counter())[SIZE, str(size)] += times
                    for code, times in tally.errors.items():
                        values.setdefault(key, Counter())[ERROR, code] += times
        for (minute, series), counted in self._values.items():
            number = ids.series(connection, self._project_id, series)
            for level, length in enumerate(LEVELS):
                key = (number, level, minute // length * length)
                for term, times in counted.items():
                    values.setdefault(key, Counter())[term] += times
        _write_sums(connection, rows)
        _write_values(connection, values)


def _place(cell: tuple[_Key, object]) -> _Key:
    return cell[0]


def _sums(tally: Tally) -> dict[str, int]:
    found = {name: number for name, number in tally.counts.items() if number}
    lost = found.pop("lost_ns", 0)
    seconds, rest = divmod(abs(lost), SECOND)
    sign = 1 if lost >= 0 else -1
    return {**found, "lost_s": sign * seconds, "lost_rest_ns": sign * rest}


def _write_sums(connection: Connection, rows: Mapping[_Key, Counter[str]]) -> None:
    given = [
        {
            **dict(zip(_KEY, key, strict=True)),
            **{name: counted[name] for name in derived.SUMS},
        }
        for key, counted in sorted(rows.items(), key=_place)
        if any(counted.values())
    ]
    if not given:
        return
    made = _INSERT[connection.dialect.name](derived.rollups)
    connection.execute(
        made.on_conflict_do_update(
            index_elements=_KEY,
            set_={name: derived.rollups.c[name] + made.excluded[name] for name in derived.SUMS},
        ),
        given,
    )
    _remove_empty(connection, derived.rollups, _KEY, derived.SUMS[:2], given)


def _write_values(connection: Connection, values: Mapping[_Key, Counter[Term]]) -> None:
    given = [
        {**dict(zip(_VALUE, (*key, *term), strict=True)), "number": number}
        for key, counted in sorted(values.items(), key=_place)
        for term, number in counted.items()
        if number
    ]
    if not given:
        return
    made = _INSERT[connection.dialect.name](derived.rollup_values)
    column = derived.rollup_values.c.number
    connection.execute(
        made.on_conflict_do_update(
            index_elements=_VALUE, set_={"number": column + made.excluded.number}
        ),
        given,
    )
    _remove_empty(connection, derived.rollup_values, _VALUE, ("number",), given)


def _remove_empty(
    connection: Connection,
    table: Any,  # noqa: ANN401  a Table's columns have no static type
    key: tuple[str, ...],
    counts: tuple[str, ...],
    given: list[dict[str, Any]],
) -> None:
    """Cells of which nothing is left are no rows; only what was taken from can be empty."""
    taken = [
        {f"a_{name}": row[name] for name in key}
        for row in given
        if any(row[name] < 0 for name in counts)
    ]
    if taken:
        connection.execute(
            delete(table).where(
                *(table.c[name] == bindparam(f"a_{name}") for name in key),
                *(table.c[name] == 0 for name in counts),
            ),
            taken,
        )
