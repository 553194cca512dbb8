"""Ids of senders: few and repeated, so each writer remembers the latest ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, insert, select, update

from flowmark_otel.backend.store import schema
from flowmark_otel.model import Sender

DAY_NS: Final = 86_400_000_000_000
"""So far behind may be what the store knows of the last use of a sender, or of a name."""

_REMEMBERED: Final = 4096


class Senders:
    """Owned by one writer thread.

    ``forget`` must follow a rollback: ids that were given since may be gone.
    """

    def __init__(self) -> None:
        self._ids: dict[tuple[int, Sender], int] = {}
        self._since = 0

    def load(
        self, connection: Connection, named: set[tuple[int, Sender]], received_at: int
    ) -> None:
        """Learn the ids of senders by project, each stored in the running transaction if new.

        In one order whoever asks, since two transactions may store the same ones. That one is in
        use is noted, and an id asked for again, every half day. Retention removes only what was not
        noted for longer than a day, so no id is remembered that is gone.
        """
        if not 0 <= received_at - self._since <= DAY_NS // 2:
            self.forget()
            self._since = received_at
        if len(self._ids) + len(named - self._ids.keys()) > _REMEMBERED:
            self.forget()
        missing = named - self._ids.keys()
        for project_id, sender in sorted(missing, key=lambda one: (one[0], _texts(one[1]))):
            self._ids[project_id, sender] = _stored(connection, project_id, sender, received_at)

    def ids(self, project_id: int, senders: Sequence[Sender]) -> list[int]:
        """The ids of senders that were loaded, in their order."""
        return [self._ids[project_id, sender] for sender in senders]

    def forget(self) -> None:
        """Remember nothing."""
        self._ids.clear()


def _stored(connection: Connection, project_id: int, sender: Sender, received_at: int) -> int:
    senders = schema.senders
    columns = senders.c
    row = dict(zip(columns.keys()[1:6], (project_id, *_texts(sender)), strict=True))
    asked = select(columns.id, columns.last_seen_at)
    found = connection.execute(
        asked.where(*(columns[name] == value for name, value in row.items()))
    ).fetchone()
    if found is not None:
        if received_at - found[1] <= DAY_NS // 2:
            return int(found[0])
        seen = update(senders).where(columns.id == found[0]).values(last_seen_at=received_at)
        if connection.execute(seen).rowcount:
            return int(found[0])
        # Retention removed it while this transaction waited for the row.
    added = insert(senders).values(**row, last_seen_at=received_at).returning(columns.id)
    return int(connection.execute(added).scalar_one())


def _texts(sender: Sender) -> tuple[str, str, str, str]:
    return (
        sender.user_agent or "",
        sender.service_name or "",
        sender.service_version or "",
        sender.service_instance_id or "",
    )
