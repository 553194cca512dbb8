"""Stores of two projects and the ways through them, every statement watched (fault row 22)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from unittest.mock import patch

from sqlalchemy import select

from flowmark_otel.backend.store import database_of, open_store, schema
from tests.support.dropping import Ran, Site, Watch
from tests.support.postgres import Cluster
from tests.support.project_reads import INNER, READS, Scene, Way, answered
from tests.support.project_writes import OF_BOTH, WRITES
from tests.support.two_projects import END, Hands, make

STATES: Final = ("folded", "stale")
READING: Final = {**READS, **{f"inner: {name}": way for name, way in INNER.items()}}
CHANGING: Final = {**WRITES, **OF_BOTH}


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


class Places(Protocol):
    """Where stores are, by their URLs."""

    def new(self) -> str:
        """Where there is no store yet, or an empty one."""
        ...

    def copy(self, url: str) -> str:
        """A copy of a store that nobody has open."""
        ...

    def drop(self, url: str) -> None:
        """Be rid of a copy."""
        ...


class Files:
    """Stores on SQLite in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def new(self) -> str:
        """A file that is not there yet."""
        self._made += 1
        return f"sqlite:///{self._folder}/{self._made}.db"

    def copy(self, url: str) -> str:
        """Another file with the same in it."""
        made = self.new()
        shutil.copy(_path(url), _path(made))
        return made

    def drop(self, url: str) -> None:
        """Remove the file and those beside it."""
        for left in self._folder.glob(f"{_path(url).name}*"):
            left.unlink()


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


class Databases:
    """Stores on a PostgreSQL server.

    A database takes long to make, so that a copy is the store itself, put back when it is dropped.
    """

    def __init__(self, server: Cluster) -> None:
        self._server = server
        self._back: dict[str, str] = {}

    def new(self) -> str:
        """A database without a table."""
        return self._server.database()

    def copy(self, url: str) -> str:
        """The same database, after what it holds was kept."""
        if url not in self._back:
            self._back[url] = self._keep(url.rpartition("/")[2])
        return url

    def drop(self, url: str) -> None:
        """Put back what it held."""
        self._server.execute(self._back[url], url.rpartition("/")[2])

    def _keep(self, database: str) -> str:
        """Keep all rows in a schema of their own; the statements that put them back."""
        made = [f"CREATE TABLE kept.{name} AS TABLE {name}" for name in _TABLES]
        self._server.execute("; ".join(["CREATE SCHEMA kept", *made]), database)
        asked = "SELECT sequencename, last_value FROM pg_sequences"
        return "; ".join(
            [
                *(f"DELETE FROM {name}" for name in reversed(_TABLES)),  # noqa: S608  own names
                *(f"INSERT INTO {name} SELECT * FROM kept.{name}" for name in _TABLES),  # noqa: S608  own names
                *(
                    f"SELECT setval('{name}', {last or 1}, {last is not None})"
                    for name, last in self._server.execute(asked, database)
                ),
            ]
        )


_TABLES: Final = (*(table.name for table in schema.metadata.sorted_tables), "search")


class Stores:
    """The stores, and ways through them while every statement is watched.

    What is made first stays as it is; whatever goes through a store goes through a copy.
    """

    def __init__(self, places: Places, watch: Watch, kinds: Sequence[bool] = (True, False)) -> None:
        """``kinds``: with ``True`` a store of ours alone, with ``False`` one of both."""
        self._places = places
        self.watch = watch
        self._made: dict[tuple[str, bool], str] = {}
        for state in STATES:
            for alone in kinds:
                url = self._made[state, alone] = places.new()
                make(url, alone=alone, folded=state == "folded")
        self._open = ExitStack()
        self._scenes: dict[tuple[str, bool], Scene] = {}
        self.told: dict[Asked, Told] = {}

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
        return Told(*self._through(way, self._scene(state, alone=alone), drop), {})

    def _changed(self, way: Way, state: str, drop: Site | None) -> Told:
        """The same on a copy of a store, with what is left of it."""
        url = self._places.copy(self._made[state, False])
        with _opened(url) as scene:
            answer, ran = self._through(way, scene, drop)
        left = dump(url)
        self._places.drop(url)
        return Told(answer, ran, left)

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
        return dump(self._made[state, False])

    def _scene(self, state: str, *, alone: bool) -> Scene:
        key = state, alone
        if key not in self._scenes:
            copied = self._places.copy(self._made[key])
            self._open.callback(self._places.drop, copied)
            self._scenes[key] = self._open.enter_context(_opened(copied))
        return self._scenes[key]


@contextmanager
def _opened(url: str) -> Iterator[Scene]:
    clock = Hands(END)
    store = open_store(url, clock=clock)
    try:
        yield Scene(store, clock)
    finally:
        store.close()


@contextmanager
def watching() -> Iterator[Watch]:
    """Every statement is watched, and goes without chance: where rows go is always the same."""
    with (
        patch("flowmark_otel.backend.store.holdings.secrets.randbelow", lambda _most: 0),
        patch("flowmark_otel.backend.store.counters._WRITERS", 1),
        patch("flowmark_otel.backend.retention.secrets.token_hex", lambda _size: "0"),
        Watch().watching() as watch,
    ):
        yield watch


def dump(url: str) -> dict[str, list[Any]]:
    """All rows of a store that are no key, by table."""
    engine = database_of(url).readers()
    with engine.connect() as connection:
        found = {
            table.name: sorted(map(tuple, connection.execute(select(table))), key=repr)
            for table in schema.metadata.sorted_tables
            if table is not schema.keys
        }
    engine.dispose()
    return found
