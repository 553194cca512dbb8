"""Ids of senders: few and repeated, so the writer remembers the latest ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from flowmark_otel.backend.store import tables
from flowmark_otel.model import Sender

_REMEMBERED: Final = 4096


class Senders:
    """Owned by the writer thread.

    ``forget`` must follow a rollback: ids that were given since may be gone.
    """

    def __init__(self) -> None:
        self._ids: dict[tuple[int, Sender], int] = {}

    def ids(
        self, connection: sqlite3.Connection, project_id: int, senders: Sequence[Sender]
    ) -> list[int]:
        """The ids of senders, each stored in the running transaction if it is new."""
        return [self._id(connection, project_id, sender) for sender in senders]

    def forget(self) -> None:
        """Remember nothing."""
        self._ids.clear()

    def _id(self, connection: sqlite3.Connection, project_id: int, sender: Sender) -> int:
        found = self._ids.get((project_id, sender))
        if found is None:
            found = self._stored(connection, project_id, sender)
            if len(self._ids) >= _REMEMBERED:
                self.forget()
            self._ids[project_id, sender] = found
        return found

    def _stored(self, connection: sqlite3.Connection, project_id: int, sender: Sender) -> int:
        row = (
            project_id,
            sender.user_agent or "",
            sender.service_name or "",
            sender.service_version or "",
            sender.service_instance_id or "",
        )
        known = connection.execute(
            "SELECT id FROM senders WHERE project_id = ? AND user_agent = ?"
            " AND service_name = ? AND service_version = ? AND service_instance_id = ?",
            row,
        ).fetchone()
        if known is None:
            tables.INSERT_SENDERS.run(connection, [(None, *row)])
            known = connection.execute("SELECT last_insert_rowid()").fetchone()
        return int(known[0])
