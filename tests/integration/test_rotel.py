"""Rotel between an application and the backend: as a plain hop, and with our processor (A24)."""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from flowmark_otel import names
from flowmark_otel.fold.redact import served_idempotency_key
from flowmark_otel.model import Span, SpanEvent
from tests.support import collecting, rotel
from tests.support.answers import Reply, answering, free_port
from tests.support.fleet import until
from tests.support.killing import SPANS, TYPE, batch, ids_of
from tests.support.otlp import traces_protobuf
from tests.support.rotel import PROCESSOR, Rotel
from tests.support.serving import Serving

UNAVAILABLE: Final = rotel.missing()
needs_rotel = pytest.mark.skipif(bool(UNAVAILABLE), reason=UNAVAILABLE)
SECRET: Final = "Bearer abcdefghijklmnop"


def export(hop: Rotel, spans: list[Span]) -> int:
    """The status of one export."""
    body = traces_protobuf(spans)
    return requests.post(
        f"http://{hop.http}/v1/traces", data=body, headers=TYPE, timeout=30
    ).status_code


def states(serving: Serving, ids: list[str]) -> Counter[str]:
    """What the backend says of events."""
    asked = {"eventIds": ids}
    answer = requests.post(f"{serving.endpoint}/v1/flowmark/status", json=asked, timeout=30)
    return Counter(event["state"] for event in answer.json()["events"])


def counted(serving: Serving) -> Counter[str]:
    """How many events met which fate, over all."""
    found: Counter[str] = Counter()
    for row in serving.get("/ingest")["events"]:
        found[row["state"]] += row["count"]
    return found


def span(number: int, **attributes: object) -> Span:
    """An attempt of one run, with other attributes, or with others in their place."""
    given = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: number, names.RUN_ID: "r"}
    ids = bytes([number]) * 16, bytes([number]) * 8
    return Span(*ids, "push", 1000, 2000, failed=False, attributes={**given, **attributes})


@needs_rotel
def test_a_plain_hop_is_believed_in_nothing(tmp_path: Path) -> None:
    """Rows 3 and 13, A24: it says OK to everything; lost reads unknown, what arrives is once."""
    address = f"127.0.0.1:{free_port()}"
    chance = random.Random(7)
    lost, kept = batch(chance), batch(chance)
    with rotel.running(address, tmp_path) as hop:
        assert export(hop, lost) == requests.codes.ok  # nobody is behind it
        hop.kill()
    with ExitStack() as parties:
        where = ("--insecure-no-auth", "--http", f"127.0.0.1:{free_port()}")
        serving = parties.enter_context(Serving(tmp_path / "s.db", *where))
        letters = tmp_path / "letters.jsonl"
        config = collecting.configuration(serving.endpoint, letters=letters)
        ports = {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": address}}
        config["receivers"] = {"otlp": {"protocols": ports}}
        parties.enter_context(collecting.process(config, tmp_path))
        hop = parties.enter_context(rotel.running(address, tmp_path))
        for _ in range(2):
            assert export(hop, kept) == requests.codes.ok
        until(lambda: counted(serving)[names.DUPLICATE] == 2 * SPANS)
        assert states(serving, ids_of(kept)) == {names.STORED: 2 * SPANS}
        assert states(serving, ids_of(lost)) == {names.STATE_UNKNOWN: 2 * SPANS}
        serving.post("traces", traces_protobuf(kept), TYPE["content-type"])
        refused = span(9, **{names.ATTEMPT_NUMBER: "nine"})
        assert export(hop, [refused]) == requests.codes.ok
        until(lambda: letters.exists() and "nine" in letters.read_text())
        assert counted(serving)[names.CONFLICT] == 0
        assert counted(serving)[names.STORED] == 2 * SPANS


@needs_rotel
def test_with_the_processor_what_is_served_is_the_same(tmp_path: Path) -> None:
    """A8, A24, row 13: what a backend takes, it takes as the same events before and after."""
    key = {names.ATTEMPT_IDEMPOTENCY_KEY: "order-4711", names.ATTEMPT_LIMIT: 3.0}
    result = {names.RUN_RESULT_PREFIX + "note": SECRET, names.ERROR_CODE: SECRET}
    spans = [span(1, **key), span(2, **result), span(3, other=SECRET)]
    with (
        Serving(tmp_path / "s.db", "--insecure-no-auth") as serving,
        rotel.running(serving.http, tmp_path, processor=PROCESSOR) as hop,
    ):
        assert export(hop, spans) == requests.codes.ok
        ids = ids_of(spans)
        until(lambda: states(serving, ids) == {names.STORED: len(ids)})
        serving.post("traces", traces_protobuf(spans), TYPE["content-type"])
        found = counted(serving)
        assert (found[names.STORED], found[names.DUPLICATE]) == (len(ids), len(ids))
        assert found[names.CONFLICT] == 0


NUMBERS: Final = (None, "", " 2", "02", "-1", "1e3", "9" * 30, b"\xff\0", float("nan"), -(2**63))
STRANGE: Final[list[dict[str, object]]] = [
    *(dict[str, object]({names.ATTEMPT_NUMBER: value}) for value in NUMBERS),
    {names.ATTEMPT_GROUP_ID: "\0"},
    {names.ATTEMPT_GROUP_ID: 4},
    {names.RECORD_TYPE: "both"},
    {names.RUN_RESULT_PREFIX + "A": "x"},
    {"flowmark.atempt.number": 1},
    {"flowmark.": True},
]


@needs_rotel
def test_the_processor_mends_what_has_one_reading_and_names_the_rest(tmp_path: Path) -> None:
    """E5, A5: strings of numbers are numbers behind it; what is refused goes on as it came."""
    mended = span(
        2, **{names.ATTEMPT_NUMBER: "2", names.ATTEMPT_LIMIT: 3.0, names.ERROR_RETRYABLE: "true"}
    )
    private = span(3, **{names.ATTEMPT_IDEMPOTENCY_KEY: "order-4711", names.RUN_OUTCOME: "7"})
    strange = [span(10 + number, **each) for number, each in enumerate(STRANGE)]
    no_ids = mended._replace(trace_id=b"", span_id=b"")
    event = (SpanEvent("e", 5, {"flowmark.k": 1}),)
    plain = Span(
        b"p" * 16, b"p" * 8, "plain", 1, 2, failed=True, attributes={"n": "2"}, events=event
    )
    sent = [mended, private, *strange, no_ids, plain]
    with (
        answering(Reply()) as behind,
        rotel.running(
            behind.endpoint.removeprefix("http://"), tmp_path, processor=PROCESSOR
        ) as hop,
    ):
        assert export(hop, sent) == requests.codes.ok
        until(lambda: behind.received)
        assert hop.process.poll() is None
    found = {key: each for one in behind.received for key, each in received(one.body).items()}
    key = served_idempotency_key("order-4711")
    changed = [
        mended._replace(
            attributes={
                **mended.attributes,
                names.ATTEMPT_NUMBER: 2,
                names.ATTEMPT_LIMIT: 3,
                names.ERROR_RETRYABLE: True,
            }
        ),
        private._replace(attributes={**private.attributes, names.ATTEMPT_IDEMPOTENCY_KEY: key}),
    ]
    expected = [*changed, *strange, plain]
    # By their words: NaN equals nothing, and 2.0 is not 2 here.
    assert [repr(found[each.trace_id]) for each in expected] == [
        repr(each.attributes) for each in expected
    ]
    said = (tmp_path / "rotel.log").read_text()
    assert f"{names.ATTEMPT_NUMBER} is the string '02'; set an integer from 1 to 2^53-1" in said
    assert "flowmark.atempt.number is no key of Flowmark's" in said
    assert "order-4711" not in said
    assert "unchecked" not in said


def received(body: bytes) -> dict[bytes, dict[str, Any]]:
    """The attributes of the spans of a request, by trace id."""
    request = ExportTraceServiceRequest.FromString(body)
    return {
        one.trace_id: {each.key: _plain(each.value) for each in one.attributes}
        for group in request.resource_spans
        for scope in group.scope_spans
        for one in scope.spans
    }


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


@pytest.fixture
def processor() -> ModuleType:
    """The processor, loaded anew as Rotel loads it."""
    spec = importlib.util.spec_from_file_location("processor", PROCESSOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Panicking:
    """Raises at whatever is asked of it, as a panic of Rust's does: no Exception."""

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt(name)


class Holding:
    """What Rotel hands over, with parts that panic."""

    def __init__(self, **parts: object) -> None:
        self.__dict__.update(parts)


@pytest.mark.parametrize(
    "given",
    [
        Panicking(),
        Holding(scope_spans=[Panicking()]),
        Holding(scope_spans=[Holding(spans=[Panicking(), Panicking()])]),
        Holding(scope_spans=[Holding(spans=[Holding(attributes=[Panicking()])])]),
        Holding(
            scope_spans=[
                Holding(spans=[Holding(attributes=[Holding(key=names.RUN_ID, value=Panicking())])])
            ]
        ),
    ],
    ids=["resource", "scope", "span", "attribute", "value"],
)
def test_the_processor_raises_nothing(
    processor: ModuleType, given: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 10, item 2: whatever fails inside, nothing is raised, and it is said once."""
    for _ in range(2):
        processor.process_spans(given)
    [line] = capsys.readouterr().err.splitlines()
    assert "passed on unchecked: KeyboardInterrupt" in line


def test_the_processor_does_not_fill_a_log(
    processor: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 10, item 2: each fault is said once, a bounded number of them, in one line each."""
    for number in range(1000):
        held = Holding(key=names.ATTEMPT_GROUP_ID, value=Holding(value=number))
        one = Holding(attributes=[held], trace_id=b"t" * 16, span_id=b"s" * 8, name="a\nb")
        processor.process_spans(Holding(scope_spans=[Holding(spans=[one])]))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 257
    assert all(line.startswith("flowmark: ") for line in lines)
    assert "no more are named" in lines[-1]
