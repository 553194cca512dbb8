"""Figures over many runs: sums of whole cells, kept runs at the edges, stale runs as they are now.

All three add up to what folding every run would give (E4; contract, section 5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from flowmark_otel.backend.summary import rollups
from flowmark_otel.backend.summary.folding import Term
from flowmark_otel.backend.summary.live import Part, live, rest
from flowmark_otel.backend.summary.rollups import ALL, Name
from flowmark_otel.backend.summary.spans import (
    Span,
    bucket_of,
    edges_of,
    level_of,
    pieces,
)
from flowmark_otel.fold.rates import Tally


class Gathered:
    """The figures of one project in a time, on one snapshot.

    ``tallies`` by name, without what has a spread; ``spread`` completes some of them.
    ``not_included`` runs changed and are too many to be folded for one answer.
    """

    def __init__(
        self,
        connection: Connection,
        project_id: int,
        since: int,
        until: int,
        workflow: str | None = None,
    ) -> None:
        self._connection = connection
        self._since, self._until = since, until
        self._names = rollups.names_of(connection, project_id, workflow)
        self._spans = pieces(since, until)
        found = live(connection, project_id, since, until, workflow)
        self.not_included = found.not_included
        self._parts: list[Part] = found.parts
        for span in self._spans:
            if span.level is None:
                self._parts += rest(connection, project_id, span.since, span.until, workflow)
        summed = rollups.sums(connection, project_id, self._spans, workflow)
        # What only the parts know of: a spread is a sum like any other, and may be taken from.
        self._spreads: dict[Name, Tally] = {}
        self.tallies: dict[Name, Tally] = {}
        for series, tally in summed.items():
            self.tallies.setdefault(self._names[series], Tally()).add(tally)
        for part in self._parts:
            for name, tally in _named(part):
                self.tallies.setdefault(name, Tally()).add(Tally(tally.counts), part.times)
                spread = Tally({}, tally.sizes, tally.errors)
                self._spreads.setdefault(name, Tally()).add(spread, part.times)
        self.tallies = {name: tally for name, tally in self.tallies.items() if tally.counts}

    def spread(self, names: Sequence[Name]) -> dict[Name, Tally]:
        """The tallies of some names with sizes of groups and error codes."""
        series = self._series(names)
        found = {name: Tally() for name in names}
        for name, tally in found.items():
            tally.add(self.tallies.get(name, Tally()))
            tally.add(self._spreads.get(name, Tally()))
        for one, counted in rollups.spread(self._connection, series, self._spans).items():
            rollups.add_spread(found[self._names[one]], counted)
        return found

    def values(self) -> Mapping[Term, int]:
        """How many runs there are of each status, and with each problem."""
        counted: Counter[Term] = Counter()
        series = self._series([ALL])
        for found in rollups.spread(self._connection, series, self._spans).values():
            counted.update(found)
        for part in self._parts:
            for value in part.values:
                counted[value] += part.times
        return counted

    def buckets(
        self, names: Sequence[Name], step: int
    ) -> tuple[list[int], dict[Name, list[Tally]]]:
        """The edges of the buckets, and the tallies of some names in each of them."""
        edges = edges_of(self._since, self._until, step)
        found = {name: [Tally() for _ in edges[1:]] for name in names}
        series = self._series(names)
        for span in _whole(edges, step):
            summed = rollups.sums_by_step(self._connection, series, span, step)
            for (one, begin), tally in summed.items():
                found[self._names[one]][bucket_of(edges, begin)].add(tally)
        for index, span in _cut(edges, step):
            summed = rollups.sums_by_step(self._connection, series, span, step)
            for (one, _), tally in summed.items():
                found[self._names[one]][index].add(tally)
        for part in self._parts:
            index = bucket_of(edges, part.first_received_at)
            for name, tally in _named(part):
                if name in found:
                    found[name][index].add(Tally(tally.counts), part.times)
        return edges, found

    def _series(self, names: Iterable[Name]) -> list[int]:
        wanted = set(names)
        return [series for series, name in self._names.items() if name in wanted]


def _named(part: Part) -> Iterable[tuple[Name, Tally]]:
    for operation, tally in part.tallies.items():
        yield (part.workflow, operation), tally
        yield ALL, tally


def _whole(edges: list[int], step: int) -> list[Span]:
    """The buckets that are of the whole length, as one span."""
    begin = edges[0] if edges[0] % step == 0 else edges[1]
    end = edges[-1] if edges[-1] % step == 0 else edges[-2]
    return [Span(level_of(step), begin, end)] if begin < end else []


def _cut(edges: list[int], step: int) -> Iterable[tuple[int, Span]]:
    """The others, at most the first and the last, in cells; by index of the bucket."""
    for index in {0, len(edges) - 2}:
        if edges[index] % step or edges[index + 1] % step:
            for span in pieces(edges[index], edges[index + 1]):
                if span.level is not None:
                    yield index, span
