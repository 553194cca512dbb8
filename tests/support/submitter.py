"""A program that submits events without end and prints the ids of those acknowledged.

Arguments: the database URL and a number that no earlier run was given.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from concurrent.futures import Future

from flowmark_otel.backend.store import Verdict, open_store
from tests.support.envelopes import WAIT, batch, completed, started

IN_FLIGHT = 8
OPERATIONS = 16


def main(url: str, turn: int) -> None:
    """Submit until killed."""
    store = open_store(url)
    waiting: deque[tuple[list[str], Future[Verdict]]] = deque()
    number = turn * 1_000_000
    while True:
        events = []
        for _ in range(OPERATIONS):
            number += 1
            run = f"run-{number // 50}"
            events += [started(number, ("g", number), run=run)]
            events += [completed(number, ("g", number), run=run)]
        ids = [each.event_id for each in events]
        waiting.append((ids, store.submit(batch(events))))
        if len(waiting) > IN_FLIGHT:
            ids, future = waiting.popleft()
            assert future.result(WAIT).stored == len(ids)
            os.write(1, ("".join(f"{each}\n" for each in ids)).encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
