"""Which runs a list shows: the filters, answered by the cheapest way that is exact.

A run that is summarised is found by its terms; one that is stale is decided from its evidence.
Both are walked in the order of the list, piece by piece. A walk ends where the page is full, the
list ends, or so many runs were looked at that the page has to be given as it is: it is then short,
and the next one goes on where this one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    exists,
    false,
    func,
    literal,
    select,
    text,
    true,
    tuple_,
    union_all,
)

from flowmark_otel.backend.evidence import DbRow, belongs
from flowmark_otel.backend.read import filters
from flowmark_otel.backend.read.errors import BadParameter
from flowmark_otel.backend.read.filters import RunFilters
from flowmark_otel.backend.store import derived, schema
from flowmark_otel.backend.summary import folding, search, words
from flowmark_otel.backend.summary.folding import Term
from flowmark_otel.backend.tries import run_tries

MOST_NAMED: Final = 5000
"""Runs that an index or the full text names: so many are sorted, of more the list is walked."""

MOST_LOOKED_AT: Final = 20_000
"""Runs that one page looks at, stale ones a tenth of it: they cost that much more."""

_FIRST: Final = 2000
"""Runs that are looked at before the full text is asked: words that many have fill a page there."""

_LARGEST: Final = 2000  # runs of one piece
_GROWTH: Final = 4  # of a piece beyond the one before
_ESTIMATE: Final = 1000  # a term of more runs than this is common
_runs = schema.runs.c
_postings = derived.postings.c
_ORDER: Final = (_runs.first_received_at.desc(), _runs.id.desc())
_STALE: Final = text("runs.stale = 1")

RunRow: TypeAlias = DbRow
"""All columns of ``runs``, and whether a conflict contradicts it."""
Position: TypeAlias = tuple[int, int]
"""First arrival and ``runs.id``."""
_Walk: TypeAlias = Callable[[Position | None, int], Select[Any] | CompoundSelect[Any]]
_Decide: TypeAlias = Callable[[Sequence[int]], Sequence[RunRow]]


class Found(NamedTuple):
    """Rows in order; ``end``: so far the list was looked at, None where that is all of it."""

    rows: list[RunRow]
    end: Position | None


def find(
    connection: Connection,
    project_id: int,
    wanted: RunFilters,
    position: Position | None,
    limit: int,
) -> Found:
    """At most ``limit`` runs after ``position``, the latest first arrival first."""
    return _Finder(connection, project_id, wanted).page(position, limit)


def place(row: RunRow) -> Position:
    """Where a run is in the list."""
    return row.first_received_at, row.id


class _Finder:
    """One question on one snapshot."""

    def __init__(self, connection: Connection, project_id: int, wanted: RunFilters) -> None:
        self._connection = connection
        self._project_id = project_id
        self._wanted = wanted
        self._phrases = None if wanted.q is None else words.phrases_of(wanted.q)
        number = sum(map(len, self._phrases or ()))
        if self._phrases == []:
            msg = f"q: found {wanted.q!r}; set a text with a letter or a digit to look for"
            raise BadParameter(msg)
        if number > words.MOST_ASKED:
            msg = f"q: found {number} words; set at most {words.MOST_ASKED}"
            raise BadParameter(msg)

    def page(self, position: Position | None, limit: int) -> Found:
        wanted = self._wanted
        terms = list(_terms(wanted))
        by_name = filters.named(self._project_id, wanted)
        if by_name:
            named = self._named(by_name)
            if len(named) <= MOST_NAMED:
                return self._cut([self._sorted(named, position, limit)], limit)
        if not terms and not by_name and self._phrases is None:
            everything = self._walk(self._by_arrival, self._all, position, limit)
            return self._cut([everything], limit)
        stale = self._walk(self._by_staleness, self._stale, position, limit, MOST_LOOKED_AT // 10)
        return self._cut([stale, self._summarised(terms, position, limit)], limit)

    def _cut(self, parts: Sequence[Found], limit: int) -> Found:
        """Lists that were each walked to an end of their own, as one page."""
        end = max((part.end for part in parts if part.end is not None), default=None)
        rows = sorted((row for part in parts for row in part.rows), key=place, reverse=True)
        if end is not None:
            rows = [row for row in rows if place(row) >= end]
        if len(rows) > limit:
            return Found(rows[:limit], place(rows[limit - 1]))
        return Found(rows, end)

    # -- what a few runs are named by ---------------------------------------------------------

    def _named(self, by_name: Sequence[Select[Any]]) -> set[int]:
        """The runs that all of the look-ups name, or too many of them."""
        found: set[int] | None = None
        for statement in by_name:
            ids = statement.distinct().limit(MOST_NAMED + 1)
            some: set[int] = {row[0] for row in self._connection.execute(ids)}
            if len(some) <= MOST_NAMED:
                found = some if found is None else found & some
        return set(range(MOST_NAMED + 1)) if found is None else found

    def _sorted(self, named: set[int], position: Position | None, limit: int) -> Found:
        """Named runs by arrival, decided from the evidence whether they are stale or not."""

        def walk(after: Position | None, size: int) -> Select[Any]:
            return self._after(_PLACES.where(_runs.id.in_(list(named))), after, size)

        hot = list(filters.named_one_by_one(self._wanted))
        return self._walk(walk, lambda ids: self._from_evidence(ids, hot), position, limit)

    # -- walking --------------------------------------------------------------------------------

    def _walk(
        self,
        walk: _Walk,
        decide: _Decide,
        position: Position | None,
        limit: int,
        most: int | None = None,
        *,
        sparse: bool = False,
    ) -> Found:
        """``sparse``: of few places wanted alone are given, so that pieces may be larger."""
        most = MOST_LOOKED_AT if most is None else most
        rows: list[RunRow] = []
        size = min((limit + 1) * (_GROWTH**2 if sparse else 1), _LARGEST)
        largest = MOST_NAMED if sparse else _LARGEST
        looked_at = 0
        while len(rows) <= limit and looked_at < most:
            places: Sequence[DbRow] = self._connection.execute(walk(position, size)).all()
            if places:
                rows += decide([run for _, run, wanted in places if wanted])
            last = [one for one in places if not one.wanted] if sparse else places[size - 1 :]
            if not last:
                return Found(rows, None)
            position = (last[0][0], last[0][1])
            looked_at += size
            size = min(size * _GROWTH, largest)
        return Found(rows, position)

    def _after(self, statement: Select[Any], after: Position | None, size: int) -> Select[Any]:
        statement = statement.where(*filters.within(self._wanted))
        if after is not None:
            statement = statement.where(tuple_(_runs.first_received_at, _runs.id) < tuple_(*after))
        return statement.order_by(*_ORDER).limit(size)

    def _by_arrival(self, after: Position | None, size: int) -> Select[Any]:
        return self._after(_PLACES.where(_runs.project_id == self._project_id), after, size)

    def _by_staleness(self, after: Position | None, size: int) -> Select[Any]:
        stale = _PLACES.where(_runs.project_id == self._project_id, _STALE)
        return self._after(stale, after, size)

    def _by_terms(
        self, terms: Sequence[int], after: Position | None, size: int
    ) -> Select[Any] | CompoundSelect[Any]:
        """The runs of the first term that have the others as well: seeks in one index.

        Of several terms the last place of a whole piece is given as well, as not wanted.
        """
        piece = self._by_term(terms[0], after, size)
        if len(terms) == 1:
            return piece
        place_ = piece.subquery("piece").c
        others = [
            exists().where(
                one.c.term == term,
                one.c.first_received_at == place_.first_received_at,
                one.c.run == place_.run,
            )
            for term in terms[1:]
            for one in [derived.postings.alias()]
        ]
        last = self._by_term(terms[0], after, 1).offset(size - 1).subquery("last").c
        return union_all(
            select(place_.first_received_at, place_.run, place_.wanted).where(*others),
            select(last.first_received_at, last.run, false().label("wanted")),
        )

    def _by_term(self, term: int, after: Position | None, size: int) -> Select[Any]:
        arrival = _postings.first_received_at
        statement = select(arrival, _postings.run, true().label("wanted"))
        statement = statement.where(_postings.term == term)
        if self._wanted.since is not None:
            statement = statement.where(arrival >= self._wanted.since)
        if self._wanted.until is not None:
            statement = statement.where(arrival < self._wanted.until)
        if after is not None:
            statement = statement.where(tuple_(arrival, _postings.run) < tuple_(*after))
        return statement.order_by(arrival.desc(), _postings.run.desc()).limit(size)

    # -- deciding -------------------------------------------------------------------------------

    def _all(self, ids: Sequence[int]) -> Sequence[RunRow]:
        return self._rows(ids, [])

    def _stale(self, ids: Sequence[int]) -> Sequence[RunRow]:
        return self._from_evidence(ids, list(filters.named_one_by_one(self._wanted)))

    def _from_evidence(
        self, ids: Sequence[int], further: Sequence[ColumnElement[bool]]
    ) -> Sequence[RunRow]:
        held = [*filters.conditions(self._project_id, self._wanted), *further]
        rows = self._rows(ids, held)
        decides = filters.exact(self._wanted)
        if decides is not None:
            doubtful = [row.id for row in rows if row.contradicted]
            tries = run_tries(self._connection, self._project_id, doubtful)
            rows = [row for row in rows if row.id not in tries or decides(tries[row.id])]
        if self._phrases is None or not rows:
            return rows
        read = folding.summarise(self._connection, self._project_id, rows)
        return [row for row in rows if words.matches(read[row.id].body, self._phrases)]

    def _rows(self, ids: Sequence[int], held: Sequence[ColumnElement[bool]]) -> Sequence[RunRow]:
        return self._connection.execute(
            select(schema.runs, filters.contradicted().label("contradicted"))
            .where(_runs.id.in_(ids), belongs(_runs.project_id, self._project_id), *held)
            .order_by(*_ORDER)
        ).all()

    # -- summarised runs ------------------------------------------------------------------------

    def _summarised(self, terms: Sequence[Term], position: Position | None, limit: int) -> Found:
        by_term = self._ids(terms)
        if len(by_term) < len(terms):
            return Found([], None)  # no run has it
        held = [*filters.named_one_by_one(self._wanted), *self._beside_terms()]
        held.append(_runs.stale == 0)
        rarest, number = self._rarest(by_term)

        def walk(after: Position | None, size: int) -> Select[Any] | CompoundSelect[Any]:
            if rarest is None:
                return self._by_arrival(after, size)
            others = [term for term in by_term if term != rarest]
            return self._by_terms([rarest, *others], after, size)

        def decide(ids: Sequence[int]) -> Sequence[RunRow]:
            if self._phrases is not None and ids:
                # Before the rows are read, which costs the more.
                ids = list(search.among(self._connection, self._project_id, self._phrases, ids))
            return self._rows(ids, held) if ids else []

        sparse = len(by_term) > 1
        if self._phrases is None or number < _ESTIMATE:  # those are gone through sooner
            return self._walk(walk, decide, position, limit, sparse=sparse)
        first = self._walk(walk, decide, position, limit, _FIRST, sparse=sparse)
        if first.end is None or len(first.rows) > limit:
            return first
        wanted = limit - len(first.rows)
        found = search.some(self._connection, self._project_id, self._phrases, MOST_NAMED + 1)
        if len(found) > MOST_NAMED:
            rest = self._walk(walk, decide, first.end, wanted, sparse=sparse)
        else:
            all_terms = [*held, *map(_has, by_term)]
            rest = self._walk(
                lambda after, size: self._after(_PLACES.where(_runs.id.in_(found)), after, size),
                lambda ids: self._rows(ids, all_terms),
                first.end,
                wanted,
            )
        return Found([*first.rows, *rest.rows], rest.end)

    def _beside_terms(self) -> Iterator[ColumnElement[bool]]:
        """What the terms do not say to the end."""
        least = self._wanted.min_attempts
        summaries = derived.summaries.c
        if least is not None and least > folding.DENSE:
            yield exists().where(summaries.run == _runs.id, summaries.most_attempts >= least)
        if self._wanted.problem == "unresolved":
            # The run that was missing may have come since.
            yield filters.unresolved()

    def _ids(self, terms: Sequence[Term]) -> list[int]:
        columns = derived.terms.c
        found: list[int] = []
        for kind, value in terms:
            statement = select(columns.id).where(
                columns.project_id == self._project_id,
                columns.kind == kind,
                columns.value == value,
            )
            found += self._connection.execute(statement).scalars()
        return found

    def _rarest(self, terms: Sequence[int]) -> tuple[int | None, int]:
        """The term that the fewest runs have, and of how many, as far as counted."""
        if not terms or (len(terms) == 1 and self._phrases is None):
            return (terms[0] if terms else None), _ESTIMATE
        counts = [
            select(
                literal(term).label("term"),
                select(func.count())
                .select_from(self._by_term(term, None, _ESTIMATE).subquery())
                .scalar_subquery()
                .label("number"),
            )
            for term in terms
        ]
        rows = self._connection.execute(union_all(*counts)).all()
        found = min(rows, key=lambda row: row.number)
        return int(found.term), int(found.number)


_PLACES: Final = select(_runs.first_received_at, _runs.id.label("run"), true().label("wanted"))


def _has(term: int) -> ColumnElement[bool]:
    return exists().where(
        _postings.term == term,
        _postings.first_received_at == _runs.first_received_at,
        _postings.run == _runs.id,
    )


def _terms(wanted: RunFilters) -> Iterator[Term]:
    """The terms that a summarised run has, if it is wanted."""
    for kind, value in (
        (folding.WORKFLOW, wanted.workflow),
        (folding.ORIGIN, wanted.origin),
        (folding.STATUS, wanted.status),
        (folding.VERDICT, wanted.verdict),
        (folding.PROBLEM, wanted.problem),
        (folding.OPERATION, wanted.operation),
        (folding.ERROR_CODE, wanted.error_code),
    ):
        if value is not None:
            yield kind, value
    if wanted.has_retries is not None:
        yield folding.RETRIES, "true" if wanted.has_retries else "false"
    if wanted.min_attempts is not None:
        yield folding.attempts_term(wanted.min_attempts)
