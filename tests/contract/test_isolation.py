"""No statement crosses projects (fault row 22; reliability, Security: crossing projects).

Two projects of one store use the same names and ids for everything. Every function that reads or
changes one of them is gone through while each statement and its rows are watched; then each
project condition is dropped in turn, and something that is watched has to notice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

import flowmark_otel.backend
from flowmark_otel import names
from flowmark_otel.backend import status
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.views import Ingest
from tests.support.dropping import Site, Watch, is_conditional
from tests.support.isolation import (
    CHANGING,
    READING,
    STATES,
    Asked,
    Databases,
    Files,
    Stores,
    Told,
    watching,
)
from tests.support.postgres import Cluster
from tests.support.project_reads import INNER, READS, key_of
from tests.support.project_statements import (
    BUILT,
    BY_ID,
    GROWING,
    OF_POSTGRESQL,
    OF_SQLITE,
    STORE_WIDE,
)
from tests.support.project_writes import WRITES
from tests.support.two_projects import MARK, OURS, THEIRS

NOT_OF_ONE: Final = ("all of the audit", "quotas", "keys")
"""Of the inner ways those of whoever runs the store: they tell of all projects."""


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    """What is asked of any store."""
    with watching() as made:
        yield made


@pytest.fixture(scope="module")
def stores(watch: Watch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Stores on SQLite of both projects, and of ours alone."""
    with closing(Stores(Files(tmp_path_factory.mktemp("projects")), watch)) as made:
        yield made


@pytest.fixture(scope="module")
def databases(watch: Watch, postgres: Cluster) -> Iterator[Stores]:
    """Stores on PostgreSQL of both projects."""
    with closing(Stores(Databases(postgres), watch, kinds=(False,))) as made:
        yield made


def own(left: Mapping[str, list[Any]], project: int) -> dict[str, list[Any]]:
    """The rows of one project among those of a store, where they say whose they are."""
    found = {}
    for table in schema.metadata.sorted_tables:
        columns = list(table.c.keys())
        if "project_id" in columns and table is not schema.keys:
            at = columns.index("project_id")
            found[table.name] = [row for row in left[table.name] if row[at] == project]
    runs = {row[0] for row in found["runs"]}
    for name in ("occurrences", "postings"):
        at = list(schema.metadata.tables[name].c.keys()).index("run")
        found[name] = [row for row in left[name] if row[at] in runs]
    return found


def told_of(answer: object) -> object:
    """An answer without what the contract lets it tell of the whole store."""
    if isinstance(answer, Ingest):
        return replace(answer, store_bytes=0, bytes_per_attempt=None)
    return answer


@pytest.mark.parametrize("state", STATES)
def test_a_project_reads_alike_with_and_without_others(stores: Stores, state: str) -> None:
    """Row 22: answers, statements and their rows are the same whatever another project holds."""
    watched = 0
    for name in READS:
        both = stores.tell(Asked(name, state))
        alone = stores.tell(Asked(name, state, alone=True))
        assert told_of(both.answer) == told_of(alone.answer), name
        if not STORE_WIDE.keys() & {one.site.function for one in both.ran}:
            assert both.ran == alone.ran, name
            watched += 1
    assert watched > len(READS) * 3 / 4


@pytest.mark.parametrize("state", STATES)
def test_no_function_relies_on_its_caller(stores: Stores, state: str) -> None:
    """Security: given ids and rows of another project, a reading function tells nothing of it."""
    for name in INNER.keys() - set(NOT_OF_ONE):
        assert MARK not in repr(stores.tell(Asked(f"inner: {name}", state)).answer), name


@pytest.mark.parametrize("state", STATES)
def test_a_change_of_one_project_leaves_another_alone(stores: Stores, state: str) -> None:
    """Row 22: sending, deleting and expiring in one project changes no row of another's."""
    before = own(stores.before(state), THEIRS)
    for name in WRITES:
        left = own(stores.tell(Asked(name, state)).left, THEIRS)
        # That a run of theirs has to be summarised again is no change of what it says.
        assert _settled(left) == _settled(before), name


def _settled(found: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Without the last column of runs, ``stale``."""
    assert list(schema.runs.c.keys())[-1] == "stale"
    return {**found, "runs": [row[:-1] for row in found["runs"]]}


@pytest.mark.parametrize("name", ["run", "operations", "attempts", "events", "run_statistics"])
def test_a_foreign_key_does_what_an_unknown_one_does(stores: Stores, name: str) -> None:
    """Row 22: the same statements with the same rows, and the same answer to the letter."""

    def ask(key: str) -> Told:
        return stores.ask(lambda scene: getattr(scene.reader, name)(OURS, key), "folded")

    foreign, unknown = ask(key_of(THEIRS, "r1")), ask("0" * 32)
    assert foreign == unknown
    assert foreign.answer == ("NotFound", "no run with this key")


def test_foreign_event_ids_and_traces_do_what_unknown_ones_do(stores: Stores) -> None:
    """Row 22: status and look-ups by trace run the same statements, and find the same nothing."""

    def states(*ids: str) -> Told:
        told = stores.ask(
            lambda scene: status.states(scene.store, OURS, names.ORIGIN_SERVER, list(ids)), "folded"
        )
        assert isinstance(told.answer, list)
        return told._replace(answer=[one[1:] for one in told.answer])

    span = f"run-{1:032x}-{{:016x}}-start"
    assert states(span.format(22)) == states(span.format(99))
    known = stores.ask(
        lambda scene: status.states(scene.store, THEIRS, names.ORIGIN_SERVER, [span.format(22)]),
        "folded",
    )
    assert [one[1] for one in known.answer] == [names.STORED]  # type: ignore[attr-defined]

    def trace(number: int) -> Told:
        key = number.to_bytes(16, "big")
        return stores.ask(lambda scene: scene.reader.trace(OURS, key), "folded")

    assert trace(2) == trace(99)
    assert trace(2).answer.items == ()  # type: ignore[attr-defined]


@pytest.mark.timeout(300)
def test_no_project_condition_can_be_dropped(stores: Stores) -> None:
    """Row 22: whichever statement loses its project condition, an answer or a row gives it away."""
    running = _conditional(stores, _ways((*READING, *CHANGING)))
    unnoticed = _unnoticed(stores, running)
    noticed = {site.function for site in running if site not in unnoticed}
    assert len(running) > 100
    assert noticed >= set(GROWING)
    assert {site.function for site in unnoticed} <= set(GROWING), unnoticed


@pytest.mark.needs("psql")
@pytest.mark.timeout(300)
def test_no_project_condition_can_be_dropped_on_postgresql(
    stores: Stores, databases: Stores
) -> None:
    """Row 22: what PostgreSQL is asked is what SQLite is asked, word for word, or is held as well.

    Statements are compared by what SQLAlchemy makes of them for one dialect. Those that are written
    for PostgreSQL lose their condition there.
    """
    # What is changed is changed alike in both states; to put a database back takes its time.
    ways = [*_ways(READING), *_ways(CHANGING, "stale")]
    running = _conditional(databases, ways)
    shared = _conditional(stores, ways).keys()
    own = {site: ways for site, ways in running.items() if site not in shared}
    assert {site.function for site in own} == set(OF_POSTGRESQL)
    assert {site.function for site in shared - running.keys()} == set(OF_SQLITE)
    assert _unnoticed(databases, own) == []


def _ways(names_: Iterable[str], *states: str) -> list[Asked]:
    """Ways through stores of both projects, in each state or in some."""
    return [Asked(name, state) for name in names_ for state in states or STATES]


def _conditional(stores: Stores, ways: Iterable[Asked]) -> dict[Site, list[Asked]]:
    """The statements that compare a project, and which of the ways run them."""
    running: dict[Site, list[Asked]] = {}
    for asked in ways:
        for site in dict.fromkeys(one.site for one in stores.tell(asked).ran):
            if is_conditional(site):
                running.setdefault(site, []).append(asked)
    return running


def _unnoticed(stores: Stores, running: Mapping[Site, list[Asked]]) -> list[Site]:
    """Those that may lose their condition and nothing that is watched changes."""
    return [
        site
        for site, through in running.items()
        if all(stores.tell(asked, drop=site) == stores.tell(asked) for asked in through)
    ]


def test_every_project_condition_of_the_source_is_gone_through(stores: Stores) -> None:
    """Row 22: a function that compares a project and is not among the ways fails here."""
    ran = {
        one.site.function
        for name in (*READING, *CHANGING)
        for state in STATES
        for one in stores.tell(Asked(name, state)).ran
    }
    assert set(_comparing()) - ran == BUILT.keys()


def _comparing() -> Iterator[str]:
    """The functions of the backend that compare a ``project_id``, as sites name them."""
    root = Path(flowmark_otel.backend.__file__).parent
    for path in root.rglob("*.py"):
        if {"migrations", "postgresql"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(map(_compares, ast.walk(node))):
                yield f"{path.relative_to(root)} {node.name}"


def _compares(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "belongs"
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.Attribute) and side.attr == "project_id"
        for side in (node.left, *node.comparators)
    )


def test_every_statement_without_a_project_condition_has_its_reason(stores: Stores) -> None:
    """Row 22: one that reads or changes what projects hold, by other keys, is listed with why."""
    held = {table.name for table in schema.metadata.sorted_tables} - {"meta", "projects"}
    tables = re.compile(rf"(?:FROM|JOIN|UPDATE) \"?({'|'.join(held)})\b")
    found = {
        one.site.function
        for name in (*READING, *CHANGING)
        for state in STATES
        for one in stores.tell(Asked(name, state)).ran
        if one.site.function
        and not re.search(r"project_id(?: \+ \?)? = |= \w+\.project_id", one.site.text)
        and tables.search(one.site.text)
    }
    assert found - STORE_WIDE.keys() == BY_ID.keys()
