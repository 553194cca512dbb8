"""What the client costs the application that records: processor time, longest stay, import.

Ratios and differences within one run, on the processor time of this process, all threads
together; what is compared takes turns. Where the difference is large, the least of the turns
counts, which was disturbed least; where it is small, the median of neighbours.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from flowmark_otel import names
from flowmark_otel.capture import FlowmarkSpanProcessor
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Answer, Delivery, EventStatus, NoAnswer
from flowmark_otel.model import Diagnostic, Envelope, Refused
from tests.bench.blackhole import blackhole, stored
from tests.bench.report import Figure

PLAIN: Final = 1_000
PAIRS: Final = 150
STAYING: Final = 10_000
"""Spans of each thread in one turn of the longest stay."""
ANNOTATED: Final = 4_000
"""Spans of one turn with them: their events fit the queue, so none is dropped."""
ROUNDS: Final = 9
STAYS: Final = 3
IMPORTS: Final = 9
LIMIT: Final = 8_192

MOST_MICROSECONDS: Final = 0.5
MOST_OF_STOCK: Final = 1 / 3
MOST_MILLISECONDS: Final = 1.0
MOST_IMPORT: Final = 60.0

_MICRO: Final = 1_000_000
_RESOURCE: Final = Resource({"service.name": "crm-worker", "service.version": "2.14.1"})


def measure() -> list[Figure]:
    """All four figures of the client."""
    with blackhole() as endpoint:
        return [*_plain(), *_annotated(endpoint), *_longest(endpoint), *_import()]


# -- spans without our keys -----------------------------------------------------------------------
class _Nowhere:
    """A sink that nothing should reach."""

    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        """Fail: these spans are not annotated."""
        raise AssertionError(events, resource)

    def diagnose(self, diagnostic: Diagnostic) -> None:
        """Fail: nothing is the matter."""
        raise AssertionError(diagnostic)


def _plain() -> list[Figure]:
    figures = []
    for size in (0, 6, 12):
        attributes = {f"app.detail.{index}": index for index in range(size)}
        empty = _tracer(SpanProcessor())
        ours = _tracer(FlowmarkSpanProcessor(_Nowhere(), accept_baggage=False))

        plain, more = _pairs(partial(_spans, empty, attributes), partial(_spans, ours, attributes))
        figures.append(
            Figure(
                f"span without our keys, {size} attributes",
                more / PLAIN * _MICRO,
                "µs more",
                most=MOST_MICROSECONDS,
                note=f"{more / plain:.1%} of {plain / PLAIN * _MICRO:.1f} µs",
            )
        )
    return figures


def _pairs(one: Callable[[], None], other: Callable[[], None]) -> tuple[float, float]:
    """Processor time of one act, and how much more the other takes: medians over many pairs.

    The difference is some hundredths of the whole, and the machine's pace changes by more than
    that in seconds: what is compared lies side by side, and each of the two is first in turns.
    """
    base: list[float] = []
    more: list[float] = []
    for turn in range(PAIRS):
        acts = (one, other) if turn % 2 else (other, one)
        took = {act: _processor_time(act) for act in acts}
        base.append(took[one])
        more.append(took[other] - took[one])
    return statistics.median(base), statistics.median(more)


def _processor_time(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def _spans(tracer: Tracer, attributes: Mapping[str, int]) -> None:
    for _ in range(PLAIN):
        tracer.start_span("GET /contacts", attributes=attributes).end()


# -- annotated spans ------------------------------------------------------------------------------
class Handed:
    """A transport that is handed the bytes, and answers at once."""

    encoding = "protobuf"

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """All stored."""
        del timeout
        return Answer(200, stored(body), {"content-type": content_type})

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:
        """Nobody asks."""
        raise AssertionError(event_ids, timeout)

    def after_fork(self) -> None:
        """Nobody forks."""

    def close(self) -> None:
        """Nothing to close."""


_serials: Final = count()


def _attributes() -> dict[str, str | int]:
    """Eight attributes: runs of 32 attempts, groups of three; ids never occur in another turn."""
    serial = next(_serials)
    return {
        names.WORKFLOW_NAME: "crm.sync",
        names.RUN_ID: f"2027-01-15-{serial // 32}",
        names.ATTEMPT_GROUP_ID: f"customer-batch-{serial // 3}",
        names.ATTEMPT_NUMBER: serial % 3 + 1,
        names.ATTEMPT_LIMIT: 3,
        "http.request.method": "POST",
        "server.address": "crm.example",
        "http.response.status_code": 200,
    }


def _annotated(endpoint: str) -> list[Figure]:
    stock = BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces"), max_queue_size=LIMIT)
    handed = Delivery(ClientOptions(), transport=Handed())
    http = Delivery(ClientOptions(endpoint=endpoint))
    empty = SpanProcessor()
    late = {
        "end alone": _ending(_tracer(empty), empty.force_flush),
        "stock": _ending(_tracer(stock), stock.force_flush),
        "ours": _ending(_tracer(FlowmarkSpanProcessor(handed, accept_baggage=False)), handed.flush),
        "ours, http": _ending(
            _tracer(FlowmarkSpanProcessor(http, accept_baggage=False)), http.flush
        ),
    }
    ended = _turns(late)
    early = {
        "span alone": _recording(_tracer(empty), empty.force_flush),
        "stock": _recording(_tracer(stock), stock.force_flush),
        "ours": _recording(
            _tracer(FlowmarkSpanProcessor(handed, accept_baggage=False)), handed.flush
        ),
    }
    whole = _turns(early)
    counts = {*handed.counts(), *http.counts()}
    assert counts == {(names.STORED, "")}, counts
    handed.shutdown()
    http.shutdown()
    stock.shutdown()  # type: ignore[no-untyped-call]
    base, theirs = ended["end alone"], ended["stock"] - ended["end alone"]
    from_start = whole["stock"] - whole["span alone"]

    def figure(name: str, seconds: float, most: float | None = None) -> list[Figure]:
        each = seconds / ANNOTATED * _MICRO
        return [
            Figure(name, each, "µs"),
            Figure(f"{name}, of stock", seconds / theirs, "ratio", most=most),
        ]

    return [
        Figure("annotated span, stock processor and exporter", theirs / ANNOTATED * _MICRO, "µs"),
        *figure("annotated span, end() to bytes", ended["ours"] - base, MOST_OF_STOCK),
        *figure("annotated span, end() to receipt over HTTP", ended["ours, http"] - base),
        Figure(
            "annotated span, early start included, of stock",
            (whole["ours"] - whole["span alone"]) / from_start,
            "ratio",
        ),
    ]


def _ending(tracer: Tracer, flush: Callable[[], object]) -> Callable[[], float]:
    """A turn: spans that were started and annotated before are ended and delivered."""

    def turn() -> float:
        spans = [tracer.start_span("push-to-crm") for _ in range(ANNOTATED)]
        for span in spans:
            span.set_attributes(_attributes())
        gc.collect()
        began = time.process_time()
        for span in spans:
            span.end()
        flush()
        return time.process_time() - began

    return turn


def _recording(tracer: Tracer, flush: Callable[[], object]) -> Callable[[], float]:
    """A turn: spans are started annotated, ended and delivered."""

    def turn() -> float:
        every = [_attributes() for _ in range(ANNOTATED)]
        gc.collect()
        began = time.process_time()
        for attributes in every:
            tracer.start_span("push-to-crm", attributes=attributes).end()
        flush()
        return time.process_time() - began

    return turn


# -- the longest stay -----------------------------------------------------------------------------
class _Timed(SpanProcessor):
    """How long each call of a processor keeps the thread that records, in seconds."""

    def __init__(self, inner: SpanProcessor) -> None:
        self.inner = inner
        self.stays: list[float] = []

    def on_start(self, span: Span, parent_context: object = None) -> None:
        """Pass on, timed."""
        began = time.perf_counter()
        self.inner.on_start(span, parent_context)  # type: ignore[arg-type]
        self.stays.append(time.perf_counter() - began)

    def on_end(self, span: ReadableSpan) -> None:
        """Pass on, timed."""
        began = time.perf_counter()
        self.inner.on_end(span)
        self.stays.append(time.perf_counter() - began)

    def highest(self) -> float:
        """The stay of which one in a thousand is longer, in milliseconds."""
        return statistics.quantiles(self.stays, n=1000)[-1] * 1000


class _Gone(Handed):
    """Nobody answers: the queue fills up."""

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """No answer."""
        raise NoAnswer(f"{len(body)} {content_type} {timeout}")  # noqa: EM102, TRY003 - never read


def _longest(endpoint: str) -> list[Figure]:
    """Threads that record and rest in turns, as requests are served; one in a thousand calls."""
    delivering = Delivery(ClientOptions(endpoint=endpoint))
    full = Delivery(ClientOptions(), transport=_Gone())
    stock = BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces"), max_queue_size=LIMIT)
    processors: dict[str, SpanProcessor] = {
        "stock processor": stock,
        "delivering": FlowmarkSpanProcessor(delivering, accept_baggage=False),
        "queue full": FlowmarkSpanProcessor(full, accept_baggage=False),
    }
    _stays(processors["queue full"])  # fills it
    found = {
        what: min(_stays(processor) for _ in range(STAYS)) for what, processor in processors.items()
    }
    stock.shutdown()  # type: ignore[no-untyped-call]
    delivering.shutdown()
    assert full.counts()[names.DROPPED, names.REASON_QUEUE_FULL]
    full.try_flush(0)
    reference = found.pop("stock processor")
    return [
        Figure("longest stay, stock processor", reference, "ms, p99.9"),
        *(
            Figure(f"longest stay, {what}", value, "ms, p99.9", most=MOST_MILLISECONDS)
            for what, value in found.items()
        ),
    ]


def _stays(processor: SpanProcessor) -> float:
    timed = _Timed(processor)
    tracer = _tracer(timed)

    def work() -> None:
        for _ in range(STAYING):
            tracer.start_span("push-to-crm", attributes=_attributes()).end()
            time.sleep(0.0002)  # what a request does otherwise

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return timed.highest()


# -- the import -----------------------------------------------------------------------------------
_IMPORTING: Final = """
import time
import opentelemetry.sdk.trace
began = time.process_time()
import flowmark_otel
print(time.process_time() - began)
"""


def _import() -> list[Figure]:
    found = []
    for _ in range(IMPORTS):
        done = subprocess.run(
            [sys.executable, "-c", _IMPORTING], stdout=subprocess.PIPE, check=True, timeout=60
        )
        found.append(float(done.stdout) * 1000)
    return [Figure("import beyond the SDK's", statistics.median(found), "ms", most=MOST_IMPORT)]


# -- turns ----------------------------------------------------------------------------------------
def _turns(acts: Mapping[str, Callable[[], float | None]]) -> dict[str, float]:
    """The least processor time of each act, in seconds; an act may measure itself."""
    found: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(ROUNDS):
        for name, act in acts.items():
            gc.collect()
            began = time.process_time()
            own = act()
            took = time.process_time() - began
            found[name].append(took if own is None else own)
    return {name: min(times) for name, times in found.items()}


def _tracer(processor: SpanProcessor) -> Tracer:
    provider = TracerProvider(resource=_RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider.get_tracer("bench")
