"""Laws of the collector: what it answers end to end is what the backend would have answered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import requests

from flowmark_otel import names
from flowmark_otel.fold import events_of
from flowmark_otel.model import Envelope, Receipt
from flowmark_otel.signals import NO_SIGNALS
from flowmark_otel.wire import receipt as receipts
from flowmark_otel.wire.decode import decode_traces
from flowmark_otel.wire.encode import encode_logs
from flowmark_otel.wire.outcome import ANSWERS, CONFLICT, OK, REFUSED
from flowmark_otel.wire.status import decode_status
from tests.support.collecting import collecting, configuration
from tests.support.payloads import JSON, PROTOBUF, Json, as_json, as_protobuf, request, span
from tests.support.server import options, running
from tests.support.serving import Asking

REQUESTS: Final = 40


class Pair(NamedTuple):
    """A backend that is asked itself, and one behind a collector."""

    alone: Asking
    behind: Asking


class Meaning(NamedTuple):
    """An answer as far as its sender is told anything; the id of the store differs."""

    status: int
    receipt: Receipt | None


@pytest.fixture
def pair(tmp_path: Path, fold: dict[str, object]) -> Iterator[Pair]:
    """Two empty stores, and a collector in front of one of them."""
    with (
        running(options(tmp_path / "alone.db", insecure_no_auth=True)) as alone,
        running(options(tmp_path / "behind.db", insecure_no_auth=True)) as behind,
        collecting(configuration(f"http://{behind.http}", fold=fold)) as collector,
    ):
        yield Pair(Asking(alone.http), Asking(collector.http))


def random_request(chance: random.Random, *, broken: bool) -> tuple[str, str, bytes]:
    """Signal, content type and body: a few spans over few ids, so that they meet and contradict.

    Also within one request.
    """
    numbers = chance.choices(range(1, 9), k=chance.randint(1, 6))
    spans = [random_span(chance, each, broken=broken) for each in numbers[1:]]
    document = request(spans, chance.choice(["crm", "billing"]))
    if chance.random() < 0.3:
        more = request([random_span(chance, numbers[0], broken=broken)], "crm")
        document["resourceSpans"] += more["resourceSpans"]
    in_json = chance.random() < 0.5
    if chance.random() < 0.3:
        events = [
            event
            for item in decode_traces(as_json(document), "json").marked
            for event in events_of(item.record, NO_SIGNALS)[0]
            if isinstance(event, Envelope)
        ]
        encoding = "json" if in_json else "protobuf"
        body = encode_logs(events, {"service.name": "crm"}, encoding=encoding)
        return "logs", JSON if in_json else PROTOBUF, body
    if in_json:
        return "traces", JSON, as_json(document)
    return "traces", PROTOBUF, as_protobuf(document)


def random_span(chance: random.Random, number: int, *, broken: bool) -> Json:
    """A span with some of the keys; ``broken``: some values break their rule."""
    kind = chance.random()
    given: dict[str, object] = {}
    if kind < 0.2:
        given = {"http.method": "GET"}
    elif kind < 0.35:
        given = {
            "celery.action": "run",
            "celery.task_name": "t.fetch",
            "celery.state": "RETRY",
            "messaging.message.id": f"task-{number}",
        }
    else:
        given = {
            names.ATTEMPT_GROUP_ID: chance.choice(["g", "h"]),
            names.ATTEMPT_NUMBER: chance.randint(1, 3),
            names.RUN_ID: chance.choice(["r1", "r2"]),
        }
        if kind > 0.8:
            given[names.RUN_OUTCOME] = chance.choice(["complete", "partial"])
        if broken and chance.random() < 0.3:
            given[chance.choice([names.ATTEMPT_NUMBER, names.ERROR_CODE, names.RUN_ID])] = True
    fields: dict[str, object] = {"status": {"code": chance.choice([0, 2])}}
    if broken and chance.random() < 0.15:
        fields["spanId"] = "0" * 16  # no id can be derived: its position is told
    return span(number, given, **fields)


def meaning(answer: requests.Response, content_type: str) -> Meaning:
    """What an answer says."""
    encoding = "json" if content_type == JSON else "protobuf"
    assert answer.headers["content-type"] == content_type
    if answer.status_code == requests.codes.ok:
        receipt: Receipt | None = receipts.decode(answer.content, encoding)
    else:
        receipt = decode_status(answer.content, encoding).receipt
    return Meaning(answer.status_code, receipt and replace(receipt, backend_id=""))


def both(pair: Pair, asked: tuple[str, str, bytes]) -> tuple[Meaning, Meaning]:
    """What the backend answers, and what the collector does."""
    signal, content_type, body = asked
    return (
        meaning(pair.alone.post(signal, body, content_type), content_type),
        meaning(pair.behind.post(signal, body, content_type), content_type),
    )


@pytest.mark.parametrize("fold", [{}], ids=["fail"])
@pytest.mark.parametrize("seed", range(2))
def test_an_answer_end_to_end_is_the_answer_of_the_backend(pair: Pair, seed: int) -> None:
    """A24: any history of requests is answered alike by a backend and by a collector before one.

    Stored, duplicate, conflicting and signalled events, in both encodings, as spans and as
    envelopes. A request without events is answered with OTLP's plain success.
    """
    chance = random.Random(seed)
    seen: set[int] = set()
    for _ in range(REQUESTS):
        alone, behind = both(pair, random_request(chance, broken=False))
        seen.add(alone.status)
        if alone.receipt is not None and not alone.receipt.received:
            assert behind.status == alone.status
            assert behind.receipt is not None
            assert not behind.receipt.received
        else:
            assert behind == alone
    assert seen == {200, 409}


def dropped(told: Meaning) -> Meaning:
    """The same where the events that break a rule were dropped by a collector."""
    receipt = told.receipt
    assert receipt is not None
    rejections = tuple(
        each._replace(code=names.DROPPED) if each.code == names.INVALID else each
        for each in receipt.rejections
    )
    codes = {each.code for each in rejections}
    row = OK
    if told.status != requests.codes.ok:
        row = CONFLICT if names.CONFLICT in codes else REFUSED if names.DROPPED not in codes else OK
    return Meaning(ANSWERS[row].http, replace(receipt, rejections=rejections))


@pytest.mark.parametrize("fold", [{"on_error": "continue"}], ids=["continue"])
@pytest.mark.parametrize("seed", range(2))
def test_events_that_are_dropped_take_the_place_of_invalid_ones(pair: Pair, seed: int) -> None:
    """C1: under ``continue`` an event that breaks a rule goes alone, told ``dropped`` in its place.

    All else is as the backend answers; nothing but dropped events is no error.
    """
    chance = random.Random(seed)
    met = 0
    for _ in range(REQUESTS):
        signal, content_type, body = random_request(chance, broken=True)
        alone, behind = both(pair, (signal, content_type, body))
        assert alone.receipt is not None
        if not alone.receipt.received:
            continue
        expected = dropped(alone)
        met += expected != alone
        assert behind.receipt is not None
        assert behind.status == expected.status
        assert _counts(behind.receipt) == _counts(expected.receipt)
        assert behind.receipt.rejections == expected.receipt.rejections  # type: ignore[union-attr]
    assert met


def _counts(receipt: Any) -> tuple[object, ...]:
    return receipt.capabilities, receipt.stored, receipt.duplicate, receipt.received
