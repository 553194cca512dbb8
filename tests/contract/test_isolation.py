"""No statement crosses projects (fault row 22; reliability, Security: crossing projects).

Two projects of one store use the same names and ids for everything. Every function that reads or
changes one of them is gone through while each statement and its rows are watched; then each
project condition is dropped in turn, and something that is watched has to notice.
"""

from __future__ import annotations

import ast
import re
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pytest

import flowmark_otel.backend
from flowmark_otel import names
from flowmark_otel.backend import status
from flowmark_otel.backend.store import open_store, schema
from flowmark_otel.backend.views import Ingest
from tests.support.dropping import Ran, Site, Watch, is_conditional
from tests.support.project_reads import INNER, READS, Scene, Way, answered, key_of
from tests.support.project_statements import BUILT, BY_ID, GROWING, STORE_WIDE
from tests.support.project_writes import OF_BOTH, WRITES
from tests.support.two_projects import END, MARK, OURS, THEIRS, Hands, make

STATES: Final = ("folded", "stale")


READING: Final = {**READS, **{f"inner: {name}": way for name, way in INNER.items()}}
CHANGING: Final = {**WRITES, **OF_BOTH}
NOT_OF_ONE: Final = ("all of the audit", "quotas", "keys")
"""Of the inner ways those of whoever runs the store: they tell of all projects."""


class Asked(NamedTuple):
    """A way, and the store that it goes through."""

    name: str
    state: str
    alone: bool = False


class Told(NamedTuple):
    """An answer, what ran for it, and what was left of the store where a way changes it."""

    answer: object
    ran: list[Ran]
    left: Mapping[str, list[Any]]


class Stores:
    """The stores, and ways through them while every statement is watched."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.watch = Watch()
        for state in STATES:
            for alone in (True, False):
                make(self._path(state, alone=alone), alone=alone, folded=state == "folded")
        self._open = ExitStack()
        self.told: dict[Asked, Told] = {}
        self._scenes = {
            (state, alone): self._scene(self._path(state, alone=alone))
            for state in STATES
            for alone in (True, False)
        }

    def close(self) -> None:
        """Close what is open."""
        self._open.close()

    def tell(self, asked: Asked, drop: Site | None = None) -> Told:
        """What comes of a way; remembered where nothing is dropped."""
        if drop is not None:
            return self._tell(asked, drop)
        if asked not in self.told:
            self.told[asked] = self._tell(asked, None)
        return self.told[asked]

    def _tell(self, asked: Asked, drop: Site | None) -> Told:
        if asked.name in CHANGING:
            return self._changed(CHANGING[asked.name], asked.state, drop)
        return self.ask(READING[asked.name], asked.state, alone=asked.alone, drop=drop)

    def ask(self, way: Way, state: str, *, alone: bool = False, drop: Site | None = None) -> Told:
        """What a way answers, and the statements that ran for it."""
        return Told(*self._through(way, self._scenes[state, alone], drop), {})

    def _changed(self, way: Way, state: str, drop: Site | None) -> Told:
        """The same on a copy of a store, with what is left of it."""
        path = self._folder / "copy.db"
        for left in self._folder.glob("copy.db*"):
            left.unlink()
        shutil.copy(self._path(state, alone=False), path)
        with _opened(path) as scene:
            answer, ran = self._through(way, scene, drop)
        return Told(answer, ran, dump(path))

    def _through(self, way: Way, scene: Scene, drop: Site | None) -> tuple[object, list[Ran]]:
        self.watch.reset(drop)
        try:
            return answered(way, scene), self.watch.ran
        except Exception as error:
            # Whatever goes wrong without a condition, it is noticed.
            if drop is None:
                raise
            return type(error).__name__, self.watch.ran
        finally:
            self.watch.reset()

    def before(self, state: str) -> Mapping[str, list[Any]]:
        """What the store of both holds."""
        return dump(self._path(state, alone=False))

    def _path(self, state: str, *, alone: bool) -> Path:
        return self._folder / f"{state}-{'alone' if alone else 'both'}.db"

    def _scene(self, path: Path) -> Scene:
        return self._open.enter_context(_opened(path))


@contextmanager
def _opened(path: Path) -> Iterator[Scene]:
    clock = Hands(END)
    store = open_store(f"sqlite:///{path}", clock=clock)
    try:
        yield Scene(store, clock)
    finally:
        store.close()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """The stores, without chance: where rows go is always the same."""
    with (
        patch("flowmark_otel.backend.store.holdings.secrets.randbelow", lambda _most: 0),
        patch("flowmark_otel.backend.store.counters._WRITERS", 1),
        patch("flowmark_otel.backend.retention.secrets.token_hex", lambda _size: "0"),
    ):
        made = Stores(tmp_path_factory.mktemp("projects"))
        with closing(made), made.watch.watching():
            yield made


def dump(path: Path) -> dict[str, list[Any]]:
    """All rows of a store that are no key, by table."""
    asked = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'search%'"
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute(asked) if row[0] != schema.keys.name]
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr)  # noqa: S608  own names
            for table in tables
        }


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
    ways = [Asked(name, state) for name in (*READING, *CHANGING) for state in STATES]
    running: dict[Site, list[Asked]] = {}
    for asked in ways:
        for site in dict.fromkeys(one.site for one in stores.tell(asked).ran):
            if is_conditional(site):
                running.setdefault(site, []).append(asked)
    unnoticed = [
        site
        for site, through in running.items()
        if all(stores.tell(asked, drop=site) == stores.tell(asked) for asked in through)
    ]
    noticed = {site.function for site in running if site not in unnoticed}
    assert len(running) > 100
    assert noticed >= set(GROWING)
    assert {site.function for site in unnoticed} <= set(GROWING), unnoticed


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
