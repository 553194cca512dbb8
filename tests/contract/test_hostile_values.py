"""Values at the edge of what a column, an index or a driver takes (fault rows 14 and 20)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowmark_otel import names
from flowmark_otel.backend.accept import Acceptor
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.status import states
from flowmark_otel.backend.store import Store, open_store, schema
from flowmark_otel.backend.store.schema import unwrap_time
from flowmark_otel.fold import fold_span
from flowmark_otel.listen.protocol import Encoding, Signal
from flowmark_otel.model import Envelope, Principal, Refused
from flowmark_otel.wire import receipt
from tests.support.envelopes import observed, put, rows, started
from tests.support.history import attempt, operation_of, span
from tests.support.otlp import traces_protobuf

WIDE = "\U0001f501"  # four bytes in UTF-8
_RARE = [chr(0x1F300 + (7 * number) % 500) for number in range(200)]  # nothing to compress


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store."""
    opened = open_store(store_url)
    yield opened
    opened.close()


def wide(length: int, turn: int = 0) -> str:
    """A text of so many code points, each four bytes."""
    return "".join(_RARE[turn:] + _RARE[:turn])[:length]


def test_the_longest_names_are_stored(store: Store) -> None:
    """Contract, section 1: every length that is allowed fits into every index."""
    given = {
        **attempt(wide(128), 2**53 - 1, run_id=wide(200), workflow=wide(200), operation=wide(200)),
        names.OPERATION_ID: wide(200, 3),
        names.ATTEMPT_SERIES_NAME: wide(200, 5),
        names.ATTEMPT_SYSTEM_NAME: wide(200, 7),
        names.RETRY_OF_WORKFLOW_NAME: wide(200, 9),
        names.RETRY_OF_RUN_ID: wide(200, 11),
        names.PARENT_RUN_ID: wide(200, 13),
        names.CORRELATION_ID: wide(200, 15),
        names.ERROR_CODE: wide(128),
    }
    folded = fold_span(span(1, given, failed=True))
    assert put(store, *folded).stored == len(folded) == 3
    seen = observed(2, 1)
    seen.attributes[names.OBSERVED_SERIES] = wide(200)
    assert put(store, seen._replace(part=f"op-observed-1-{wide(200)}-1")).stored == 1
    reader = Reader(store)
    key = next(run.key for run in reader.runs(1).items if run.run_id == wide(200))
    (group,) = reader.attempts(1, key).items
    assert (group.group_id, group.gaps[0]) == (wide(128), (1, 2**53 - 2))


async def test_the_longest_senders_are_stored(store: Store) -> None:
    """Row 20: who sent is kept with whatever it calls itself, cut where need be."""
    acceptor = Acceptor(store, Keys(store), insecure=True)
    who = Principal(1, "default", names.KEY_INGEST)
    one = span(1, operation_of())._replace(service_name=wide(5000))
    reply = await acceptor.accept(
        Signal.TRACES, Encoding.PROTOBUF, traces_protobuf([one]), who, wide(5000, 3)
    )
    acceptor.close()
    assert receipt.decode(reply.body, "protobuf").stored == 2
    (sender,) = rows(store, schema.senders)
    assert wide(200).startswith(sender["service_name"])
    assert len(sender["service_name"]) == 150


@pytest.mark.parametrize("sent", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_every_time_is_stored_as_sent(store: Store, sent: int) -> None:
    """Row 14: a time of any 64 bits is evidence."""
    event = started(1)._replace(time_unix_nano=sent, dropped_attributes_count=2**32 - 1)
    assert put(store, event).stored == 1
    assert put(store, event).duplicate == 1
    (row,) = rows(store, schema.events)
    assert (unwrap_time(row["sent_at"]), row["dropped_attributes"]) == (sent, 2**32 - 1)


def test_what_was_refused_is_kept_whatever_it_holds(store: Store) -> None:
    """Row 20: NUL and lone surrogates in a refused event are evidence, not an error."""
    bad = "a\0b\udc80c"
    refused = Refused(names.INVALID, f"found {bad!r} {bad}", f"op-{bad}")
    assert len(put(store, refused, started(1)).rejections) == 1
    (row,) = rows(store, schema.rejections)
    assert row["event_id"] == "op-a?b?c"


def test_an_id_that_no_event_has_reads_unknown(store: Store) -> None:
    """Row 20: the status of an id with NUL or a lone surrogate is asked without an error."""
    put(store, started(1))
    known = started(1).event_id
    asked = ["", "\0", "\udc80", f"{known}\0", f"op-{'0' * 32}-{'0' * 16}-\0", WIDE * 5000, known]
    assert [state for _, state, _, _ in states(store, 1, "server", asked)] == [
        *["unknown"] * 6,
        "stored",
    ]


def test_a_duplicate_that_names_another_run_makes_none(store: Store) -> None:
    """A8: an event known under one default is a duplicate under another, and leaves no run."""
    one = span(1, {names.RUN_ID: "r", names.OPERATION_NAME: "push"})
    two = one._replace(service_name="renamed")
    folded = [e for e in fold_span(one) if isinstance(e, Envelope)]
    again = [e for e in fold_span(two) if isinstance(e, Envelope)]
    assert put(store, *folded).stored == 2
    assert put(store, *again).duplicate == 2
    assert [run["workflow"] for run in rows(store, schema.runs)] == ["crm-sync"]
    assert len(Reader(store).runs(1).items) == 1
