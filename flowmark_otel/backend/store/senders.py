"""Ids of senders: few and repeated, so each writer remembers the latest ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, insert, select

from flowmark_otel.backend.store import schema
from flowmark_otel.model import Sender

_REMEMBERED: Final = 4096


class Senders:
    """Owned by one writer thread.

    ``forget`` must follow a rollback: ids that were given since may be gone.
    """

    def __init__(self) -> None:
        self._ids: dict[tuple[int, Sender], int] = {}

    def load(self, connection: Connection, named: set[tuple[int, Sender]]) -> None:
        """Learn the ids of senders by project, each stored in the running transaction if new.

        In one order whoever asks, since two transactions may store the same ones.
        """
        if len(self._ids) + len(named - self._ids.keys()) > _REMEMBERED:
            self.forget()
        missing = named - self._ids.keys()
        for project_id, sender in sorted(missing, key=lambda one: (one[0], _texts(one[1]))):
            self._ids[project_id, sender] = _stored(connection, project_id, sender)

    def ids(self, project_id: int, senders: Sequence[Sender]) -> list[int]:
        """The ids of senders that were loaded, in their order."""
        return [self._ids[project_id, sender] for sender in senders]

    def forget(self) -> None:
        """Remember nothing."""
        self._ids.clear()


def _stored(connection: Connection, project_id: int, sender: Sender) -> int:
    columns = schema.senders.c
    texts = _texts(sender)
    row = dict(zip(columns.keys()[1:], (project_id, *texts), strict=True))
    asked = select(columns.id).where(*(columns[name] == value for name, value in row.items()))
    found = connection.execute(asked).scalar()
    if found is None:
        made = connection.execute(insert(schema.senders).values(row).returning(columns.id))
        found = made.scalar_one()
    return int(found)


def _texts(sender: Sender) -> tuple[str, str, str, str]:
    return (
        sender.user_agent or "",
        sender.service_name or "",
        sender.service_version or "",
        sender.service_instance_id or "",
    )
