"""Rows of ``summaries`` → what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import orjson
from sqlalchemy import Connection, select

from flowmark_otel.backend.evidence import DbRow, chunks
from flowmark_otel.backend.store import derived
from flowmark_otel.backend.summary.folding import Term
from flowmark_otel.fold.rates import Tally

_columns = derived.summaries.c
KEPT: Final = (
    _columns.run,
    _columns.origin,
    _columns.workflow,
    _columns.first_received_at,
    _columns.terms,
    _columns.tallies,
    _columns.body,
)


class Kept(NamedTuple):
    """What is kept of one run; ``terms`` are ``terms.id``."""

    run: int
    origin: str
    workflow: str
    first_received_at: int
    terms: list[int]
    tallies: dict[str, Tally]
    values: frozenset[Term]
    body: str


def pack(tallies: Mapping[str, Tally], values: Iterable[Term]) -> bytes:
    """Tallies by operation name, and the terms that are counted, as they are stored."""
    return orjson.dumps(
        [
            {
                name: [
                    {key: _told(number) for key, number in tally.counts.items() if number},
                    {str(size): number for size, number in tally.sizes.items()},
                    tally.errors,
                ]
                for name, tally in tallies.items()
            },
            sorted(values),
        ]
    )


def unpack(stored: bytes) -> tuple[dict[str, Tally], frozenset[Term]]:
    """What ``pack`` stored."""
    tallies, values = orjson.loads(stored)
    return (
        {
            name: Tally(
                {key: int(number) for key, number in counts.items()},
                {int(size): number for size, number in sizes.items()},
                errors,
            )
            for name, (counts, sizes, errors) in tallies.items()
        },
        frozenset((kind, value) for kind, value in values),
    )


def kept(connection: Connection, runs: Sequence[int]) -> dict[int, Kept]:
    """What is kept of runs, by ``runs.id``; nothing of those never folded."""
    found: dict[int, Kept] = {}
    for some in chunks(runs):
        statement = select(*KEPT).where(_columns.run.in_(some))
        found.update((row.run, read(row)) for row in connection.execute(statement))
    return found


def read(row: DbRow) -> Kept:
    """A row of the columns ``KEPT``."""
    tallies, values = unpack(row.tallies)
    return Kept(
        row.run,
        row.origin,
        row.workflow,
        row.first_received_at,
        orjson.loads(row.terms),
        tallies,
        values,
        row.body,
    )


def _told(number: int) -> int | str:
    """Lost time may be beyond what JSON integers hold."""
    return number if number < _JSON_INTEGER else str(number)


_JSON_INTEGER: Final = 2**63
