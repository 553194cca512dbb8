"""What an adapter costs the thread that calls: an attempt that succeeds at once.

Compared with the same call, not recorded, in one SDK span that carries the same attributes through
the same processor: what capture costs is counted elsewhere. What is compared takes turns on this
thread's own processor time.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from itertools import count
from typing import Final

import tenacity
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

import flowmark_otel as flowmark
from flowmark_otel import names
from flowmark_otel.adapters.instrumentor import Adapter
from flowmark_otel.adapters.tenacity import TenacityInstrumentor
from tests.bench.client import Handed
from tests.bench.report import Figure

CALLS: Final = 500
TURNS: Final = 41
MOST_OF_SPAN: Final = 10 / 16
"""Ten microseconds where a bare span takes sixteen."""

_MICRO: Final = 1_000_000
_serials: Final = count()


def measure() -> list[Figure]:
    """For each adapter the microseconds, and what part of a bare span they are."""
    provider = TracerProvider(resource=Resource({"service.name": "crm"}), shutdown_on_exit=False)
    empty = TracerProvider(resource=Resource({"service.name": "crm"}), shutdown_on_exit=False)
    empty.add_span_processor(SpanProcessor())
    flowmark.configure(tracer_provider=provider, transport=Handed())
    figures: list[Figure] = []
    for adapter, call in _adapters():
        figures += _adapter(adapter, call, provider, empty)
    flowmark.shutdown()
    return figures


def _adapters() -> list[tuple[Adapter, Callable[[], object]]]:
    return [(TenacityInstrumentor(), tenacity.retry(stop=tenacity.stop_after_attempt(3))(_push))]


def _push() -> int:
    return 1


def _adapter(
    adapter: Adapter,
    call: Callable[[], object],
    provider: TracerProvider,
    empty: TracerProvider,
) -> list[Figure]:
    captured, bare = provider.get_tracer("bench"), empty.get_tracer("bench")

    def around() -> None:
        span = captured.start_span("push", attributes=_attributes())
        call()
        span.end()

    def alone() -> None:
        span = bare.start_span("push", attributes=_attributes())
        call()
        span.end()

    took: dict[str, list[float]] = {"call": [], "around": [], "alone": [], "adapter": []}
    for _ in range(TURNS):
        took["call"].append(_time(call))
        took["around"].append(_time(around))
        took["alone"].append(_time(alone))
        adapter.instrument()
        took["adapter"].append(_time(call))
        adapter.uninstrument()
        flowmark.flush()
    least = {what: min(times) for what, times in took.items()}
    more = least["adapter"] - least["around"]
    span = least["alone"] - least["call"]
    name = adapter.requirement.partition(" ")[0]
    pairs = zip(took["adapter"], took["around"], strict=True)
    middle = statistics.median(one - other for one, other in pairs)
    return [
        Figure(f"adapter for {name}, beyond a span", more, "µs", note=f"median {middle:.1f} µs"),
        Figure(
            f"adapter for {name}, of a bare span",
            more / span,
            "ratio",
            most=MOST_OF_SPAN,
            note=f"a bare span {span:.1f} µs",
        ),
    ]


def _attributes() -> dict[str, str | int]:
    """The attributes that an adapter writes on a root try."""
    own = f"{next(_serials):032x}"
    return {
        names.RUN_ID: own,
        names.OPERATION_NAME: "tests.bench.adapters._push",
        names.ATTEMPT_GROUP_ID: own,
        names.ATTEMPT_LIMIT: 3,
        names.ATTEMPT_NUMBER: 1,
    }


def _time(act: Callable[[], object]) -> float:
    """Microseconds of one act, the mean of many."""
    gc.collect()
    began = time.thread_time()
    for _ in range(CALLS):
        act()
    return (time.thread_time() - began) / CALLS * _MICRO
