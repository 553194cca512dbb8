"""What a dialect offers to the store that is made on it: connections, statements, faults.

The seam between what is shared (``store.py``, ``writer.py``, ``transaction.py``) and the packages
``sqlite`` and ``postgresql``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Connection, Engine, Table

Driver: TypeAlias = Any
"""A connection of the driver itself; the dialect whose it is knows its type."""

Row: TypeAlias = tuple[Any, ...]


class Fault(Enum):
    """What an error of a transaction means for it."""

    AGAIN = "another transaction came first; run it again, it then meets what that one wrote"
    LOST = "the connection is gone; run it again on another"
    BROKEN = "the database failed under the connection; part with it, say unavailable"
    UNAVAILABLE = "the database cannot do it now"
    DEFECT = "the content or the program is at fault"


class Inserting(Protocol):
    """Inserts rows given as tuples of a table's columns, in their order."""

    def run(self, driver: Driver, rows: Sequence[Sequence[object]]) -> None:
        """Insert all rows."""
        ...

    def run_flat(self, driver: Driver, values: list[Any]) -> None:
        """Insert rows whose values stand one after the other in one list."""
        ...


class Updating(Protocol):
    """Sets columns of rows that exist, given as tuples of their key and these columns."""

    def run(self, driver: Driver, rows: Sequence[Sequence[object]]) -> None:
        """Update all rows."""
        ...


class Seeking(Protocol):
    """Selects what many keys name, seek by seek."""

    def run(
        self, driver: Driver, keys: Sequence[Sequence[object]], fixed: Sequence[object] = ()
    ) -> Iterator[Row]:
        """The rows that the keys name; ``fixed`` are the values of the seek's fixed columns."""
        ...


class Dialect(Protocol):
    """Renders the statements of ``tables.py``."""

    def insert(
        self,
        table: Table,
        *,
        without: Sequence[str] = (),
        order: Sequence[str] = (),
        ignore: bool = False,
    ) -> Inserting:
        """A statement for all columns but those of ``without``.

        ``order`` names the columns of a unique constraint at which several writers may meet: in
        their order rows are written where there can be several. ``ignore`` leaves out rows that a
        unique constraint forbids.
        """
        ...

    def update(self, table: Table, key: Sequence[str], columns: Sequence[str]) -> Updating:
        """A statement that sets ``columns`` where ``key`` matches."""
        ...

    def seek(
        self,
        table: Table,
        keys: Sequence[str],
        columns: Sequence[str],
        *,
        fixed: Sequence[str] = (),
        also: str = "",
        tail: str = "",
    ) -> Seeking:
        """A statement that reads columns of ``table``, named ``t``, by ``keys``.

        ``fixed`` are further columns, compared with one value for all keys; ``also`` is a further
        condition on ``t`` and ``given``; ``tail`` follows the join, and ``columns`` may name what
        it joins.
        """
        ...


class Database(Protocol):
    """Where a store is kept. All methods may be called from any thread."""

    @property
    def name(self) -> str:
        """What it is called towards people: without a password."""
        ...

    @property
    def url(self) -> str:
        """The URL as people may be told to use it: without a password."""
        ...

    @property
    def dialect(self) -> Dialect:
        """How its statements are written."""
        ...

    @property
    def writers(self) -> int:
        """How many connections of one process may write at once."""
        ...

    def create(self) -> None:
        """Make what has to be there before a connection can be; raises ConfigurationError."""
        ...

    def exists(self) -> bool:
        """Whether there is something to connect to, without making it."""
        ...

    def readers(self) -> Engine:
        """Connections whose transactions are each one snapshot, and that refuse to write."""
        ...

    def writing(self) -> Engine:
        """Connections that write; not pooled, each owned by whoever opens it."""
        ...

    def lock_schema(self, connection: Connection) -> None:
        """Keep others from changing the schema until the transaction ends."""
        ...

    def event_ids(self, connection: Connection, most: int) -> Iterator[int]:
        """Ids for up to so many new events, ascending, that no other transaction takes."""
        ...

    def run_ids(self, connection: Connection) -> Iterator[int]:
        """Ids for new runs, as ``event_ids``; none where ``claim`` gives every run its row."""
        ...

    def claim(
        self,
        connection: Connection,
        claims: Sequence[Row],
        received_at: int,
        *,
        also: Sequence[bytes] = (),
    ) -> set[bytes]:
        """Hold these runs until the end of the transaction: nobody else judges there meanwhile.

        ``claims`` are (key, project, origin, workflow, run id), each key once; ``also`` are keys
        of further runs, held where they are. Returns the keys of the runs whose row was made.
        """
        ...

    def hold(self, connection: Connection, runs: Sequence[int]) -> None:
        """Hold further runs by ``runs.id``, after ``claim``, without waiting for anybody.

        Raises what ``fault`` calls ``AGAIN`` where another transaction holds one of them.
        """
        ...

    def unclaim(self, connection: Connection, keys: Sequence[bytes]) -> None:
        """Take back rows that ``claim`` made and nobody needs."""
        ...

    def lock_rejections(self, connection: Connection, scopes: Sequence[tuple[int, str]]) -> None:
        """Keep others from writing rejections of these projects and origins, as ``claim``.

        It waits for those that accept events there, and they for it (``await_rejections``).
        """
        ...

    def await_rejections(self, connection: Connection, scopes: Sequence[tuple[int, str]]) -> None:
        """See all rejections of these projects and origins that may be written before the end.

        What is written later will see the events of this transaction. Others may accept as well.
        """
        ...

    def overtaken(self) -> Exception:
        """What to raise where others committed what this transaction should have met."""
        ...

    def fault(self, error: BaseException) -> Fault:
        """What an error of a transaction means."""
        ...

    def refusal(self, error: BaseException) -> str | None:
        """Why this can be no store, for an error of opening it that will not pass by itself."""
        ...

    def said(self, error: BaseException) -> str:
        """What the database says of an error, in one line and without what wrappers add."""
        ...


def driver_of(connection: Connection) -> Driver:
    """The driver's own connection, for statements that are run too often for a wrapper."""
    return connection.connection.driver_connection
