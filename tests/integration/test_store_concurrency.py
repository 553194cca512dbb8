"""Many senders at once (fault rows 11 to 13; I2, I3): one row an event id, and the sums right."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flowmark_otel import names
from flowmark_otel.backend.store import Store, open_store, schema
from flowmark_otel.backend.store.schema import unwrap_time
from flowmark_otel.model import Envelope, event_id
from tests.support.envelopes import NOW, WAIT, batch, completed, failed, rows, run_event, started

THREADS = 8
OPERATIONS = 120


def history(variant: int) -> list[Envelope]:
    """The events of one run; those of odd variants that end a tenth operation end it otherwise."""
    events: list[Envelope] = [run_event(names.RUN_STARTED, 1)]
    for number in range(1, OPERATIONS + 1):
        attempt = (f"g{number // 3}", number % 3 + 1)
        end = failed if variant % 2 and number % 10 == 0 else completed
        events += [started(number, attempt), end(number, attempt, at=NOW + number)]
    return events


def test_every_event_is_stored_once_whoever_comes_first(store_url: str) -> None:
    """I2, I3, I4: concurrent, reordered, rebatched, conflicting: the first wins, sums are exact."""
    store = open_store(store_url)
    barrier = threading.Barrier(THREADS)

    def send(seed: int) -> list[tuple[int, int, int, int]]:
        chance = random.Random(seed)
        events = history(seed)
        chance.shuffle(events)
        barrier.wait(WAIT)
        sums = []
        while events:
            size = chance.randint(1, 40)
            part, events = events[:size], events[size:]
            verdict = store.submit(batch(part)).result(WAIT)
            rejected = len(verdict.rejections)
            assert verdict.stored + verdict.duplicate + rejected == len(part)
            assert {each.code for each in verdict.rejections} <= {names.CONFLICT}
            sums.append((verdict.stored, verdict.duplicate, rejected, len(part)))
        return sums

    with ThreadPoolExecutor(THREADS) as threads:
        sums = [each for found in threads.map(send, range(THREADS)) for each in found]
    stored, duplicate, rejected, sent = map(sum, zip(*sums, strict=True))
    unique = 2 * OPERATIONS + 1
    conflicts = OPERATIONS // 10 * (THREADS // 2)
    assert sent == THREADS * unique
    assert (stored, duplicate, rejected) == (unique, sent - unique - conflicts, conflicts)
    check(store)
    store.close()


def check(store: Store) -> None:
    """One row an event id, each a payload that was sent, the decisions in keeping with them."""
    sent = defaultdict(set)
    for event in [*history(0), *history(1)]:
        sent[event.event_id].add((event.event, event.time_unix_nano))
    found: Counter[str] = Counter()
    by_id: dict[int, dict[str, Any]] = {}
    for row in rows(store, schema.events):
        key = event_id(row["trace_id"], row["span_id"], row["part"])
        found[key] += 1
        by_id[row["id"]] = row
        assert (row["event"], unwrap_time(row["sent_at"])) in sent[key]
    assert found == Counter(dict.fromkeys(sent, 1))
    occurrences = rows(store, schema.occurrences)
    assert len(occurrences) == OPERATIONS
    for each in occurrences:
        assert by_id[each["end_event"]]["event"] == f"flowmark.operation.{each['status']}"
        assert by_id[each["start_event"]]["event"] == names.OPERATION_STARTED
    assert len(rows(store, schema.runs)) == 1
    assert len(rows(store, schema.rejections)) == OPERATIONS // 10


def test_two_processes_may_write_by_turns(store_url: str) -> None:
    """I2: a second writer on the same store takes no id of the first and sees what it stored."""
    one, other = open_store(store_url), open_store(store_url)
    for number in range(1, 11):
        for store in (one, other):
            event = started(number, operation_id=f"op-{number}")
            verdict = store.submit(batch([event])).result(WAIT)
            assert (verdict.stored, verdict.duplicate) == ((1, 0) if store is one else (0, 1))
            extra = started(100 + number * 2 + (store is other))
            assert store.submit(batch([extra])).result(WAIT).stored == 1
    assert len(rows(one, schema.events)) == 30
    one.close()
    other.close()
