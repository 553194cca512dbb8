"""The judge by itself: what is known and what arrives → verdicts and rows, without a store."""

from __future__ import annotations

from itertools import count
from typing import Any

import orjson
import pytest

from flowmark_otel import names
from flowmark_otel.backend.batch import Prepared, Verdict, prepare
from flowmark_otel.backend.judge import Judge
from flowmark_otel.backend.known import Known
from flowmark_otel.backend.store import schema
from flowmark_otel.model import Envelope, Refused
from tests.support.envelopes import NOW, batch, completed, failed, run_event, started


def ready(*events: Envelope | Refused) -> Prepared:
    """A request that is ready to be judged."""
    return prepare(batch(events))


def judge(known: Known, *events: Envelope | Refused) -> tuple[Judge, Verdict]:
    """Judge one request of one sender."""
    judged = Judge(known, NOW)
    return judged, judged.judge(ready(*events), [7])


def new_rows(judged: Judge) -> list[list[Any]]:
    """The rows of ``events`` that are to be written."""
    width = len(schema.events.columns)
    return [judged.events[at : at + width] for at in range(0, len(judged.events), width)]


def test_ids_and_order_follow_the_request() -> None:
    """Contract, section 4: events take effect in the order of their request."""
    judged, verdict = judge(Known(count(11), count(5)), started(1), completed(1), started(2))
    assert verdict == Verdict(3, 0, [], 0)
    assert [row[0] for row in new_rows(judged)] == [11, 12, 13]
    assert [run.id for run in judged.known.runs.values()] == [5]
    assert [row[6] for row in new_rows(judged)] == [5, 5, 5]
    assert (next(judged.known.event_ids), next(judged.known.run_ids)) == (14, 6)


def test_rows_carry_arrival_and_sender() -> None:
    """Contract, section 5: with each event its arrival and its sender are stored."""
    judged, _ = judge(Known(), started(1))
    [row] = new_rows(judged)
    assert row[9:11] == [NOW, 7]
    assert orjson.loads(row[13]) == started(1).attributes


def test_a_digest_is_computed_only_where_bytes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """A8: a plain duplicate is told by its bytes; a digest needs another time or text."""
    asked: list[Envelope] = []

    def digest(envelope: Envelope) -> bytes:
        asked.append(envelope)
        return bytes(32)

    monkeypatch.setattr("flowmark_otel.backend.judge.digest", digest)
    event = completed(1, duration=5)
    _, verdict = judge(Known(), event, event, completed(1, duration=5, at=NOW))
    assert (verdict.duplicate, asked) == (2, [])
    _, verdict = judge(Known(), event, completed(1, duration=6))
    assert (verdict.duplicate, len(asked)) == (1, 2)


def test_a_known_row_is_compared_like_an_arrival() -> None:
    """A8: a duplicate of a stored row, its keys in another order, is a duplicate."""
    event = completed(1, ("g", 1))
    known = Known(count(2), count(2))
    text = orjson.dumps(dict(reversed(event.attributes.items())))
    key = (1, "server", event.trace_id, event.span_id, event.part)
    known.events[key] = (1, event.event, NOW, text)
    _, verdict = judge(known, event)
    assert verdict == Verdict(0, 1, [], 0)
    _, verdict = judge(known, failed(1, ("g", 1)))
    assert [each.code for each in verdict.rejections] == [names.CONFLICT]


def test_untouched_records_are_not_written_again() -> None:
    """A8: a duplicate changes neither its run nor its operation."""
    judged, _ = judge(Known(), started(1, ("g", 1)), run_event(names.RUN_STARTED, 1))
    for run in judged.known.runs.values():
        run.changed = False
    for found in judged.known.occurrences.values():
        found.changed = False
    again, verdict = judge(judged.known, started(1, ("g", 1)), run_event(names.RUN_STARTED, 1))
    assert (verdict.duplicate, again.events) == (2, [])
    assert not any(run.changed for run in again.known.runs.values())
    assert not any(found.changed for found in again.known.occurrences.values())


def test_the_list_names_every_rejected_event_and_counts_items_once() -> None:
    """A23: events are named, items are counted."""
    refused = Refused(names.INVALID, "bad", "op-a-start")
    arrivals = batch([refused, refused._replace(event_id="op-a-end"), started(1)])
    same_item = [each._replace(item=0) for each in arrivals.arrivals]
    judged = Judge(Known(), NOW)
    verdict = judged.judge(prepare(arrivals._replace(arrivals=same_item)), [7])
    assert (len(verdict.rejections), verdict.rejected_items, verdict.stored) == (2, 1, 1)


def test_a_duration_beyond_63_bits_is_no_number() -> None:
    """Fault row 14: what a column cannot hold reads unknown and stops nobody."""
    judged, verdict = judge(Known(), completed(1, duration=2**63))
    assert verdict.stored == 1
    [found] = judged.known.occurrences.values()
    assert found.duration_ns is None


def test_refused_text_that_is_no_text_is_kept_as_some() -> None:
    """Fault row 20: lone surrogates in a refused event reach no driver."""
    judged, verdict = judge(Known(), Refused(names.INVALID, "found '\udc80'", "op-\udc80"))
    assert verdict.rejections[0].message == "found '?'"
    assert judged.rejected[0].event_id == "op-?"
