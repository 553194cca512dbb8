"""What became of events, counted for good: ``/ingest`` tells it after any restart.

Every writer adds to rows of its own, in the transaction of the events themselves: no row is waited
for, and nothing is counted that was not written.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Executable
from sqlalchemy.dialects import postgresql, sqlite

from flowmark_otel import names
from flowmark_otel.backend.batch import Prepared, Verdict
from flowmark_otel.backend.store import derived

_WRITERS: Final = 64  # so many rows of a counter at most
_KEY: Final = ("project_id", "origin", "state", "reason", "writer")


def _adding(made: sqlite.Insert | postgresql.Insert) -> Executable:
    number = derived.counters.c.number + made.excluded.number
    return made.on_conflict_do_update(index_elements=_KEY, set_={"number": number})


_ADD: Final = {
    "sqlite": _adding(sqlite.insert(derived.counters)),
    "postgresql": _adding(postgresql.insert(derived.counters)),
}


def add(connection: Connection, requests: Sequence[Prepared], verdicts: Sequence[Verdict]) -> None:
    """Count the verdicts on some requests."""
    writer = (os.getpid() + threading.get_ident()) % _WRITERS
    rows = [
        {**dict(zip(_KEY, (*key, writer), strict=True)), "number": number}
        for key, number in sorted(count(requests, verdicts).items())
    ]
    if rows:
        connection.execute(_ADD[connection.dialect.name], rows)


def count(
    requests: Sequence[Prepared], verdicts: Sequence[Verdict]
) -> Counter[tuple[int, str, str, str]]:
    """Events by project, origin, state and reason."""
    counted: Counter[tuple[int, str, str, str]] = Counter()
    for request, verdict in zip(requests, verdicts, strict=True):
        reasons = Counter(rejection.code for rejection in verdict.rejections)
        for state, reason, number in (
            (names.STORED, "", verdict.stored),
            (names.DUPLICATE, "", verdict.duplicate - verdict.expired),
            (names.DUPLICATE, names.REASON_EXPIRED, verdict.expired),
            *((names.STATE_REJECTED, code, times) for code, times in reasons.items()),
        ):
            counted[request.project_id, request.origin, state, reason] += number
    return +counted
