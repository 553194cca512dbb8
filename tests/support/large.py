"""Large runs, written to a store without a server: many operations, many attempts, many others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from flowmark_otel import names
from flowmark_otel.backend.store import Arrival, Batch, Store
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Sender, Span, Value

BATCH: Final = 2000
SECOND: Final = 1_000_000_000
ZERO: Final = 1_796_000_000_000_000_000


def pairs(name: str, runs: int, operations: int, first: int = 0) -> Iterator[Span]:
    """Operations of two attempts each in groups of their own, ``operations`` spans a run."""
    serial = first
    for run in range(runs):
        for number in range(operations):
            serial += 1
            tried: dict[str, Value] = {
                names.ATTEMPT_GROUP_ID: f"batch-{number // 2}",
                names.ATTEMPT_NUMBER: number % 2 + 1,
            }
            yield _span(f"{name}-{run}", serial, 0.0005, tried, failed=number % 2 == 0)


def one_group(run: str, attempts: int, first: int) -> Iterator[Span]:
    """One group of many attempts, the last of which completed."""
    for number in range(1, attempts + 1):
        tried: dict[str, Value] = {
            names.ATTEMPT_GROUP_ID: "one",
            names.ATTEMPT_NUMBER: number,
            names.ERROR_CODE: "CRM_RATE_LIMITED",
        }
        yield _span(run, first + number, 0.5, tried, failed=number < attempts)


def mixed(run: str, operations: int, first: int) -> Iterator[Span]:
    """Ordinary occurrences, then as many operations in groups of twenty attempts."""
    for number in range(operations):
        tried: dict[str, Value] = {names.OPERATION_NAME: "load-batch"}
        if number >= operations // 2:
            tried[names.ATTEMPT_GROUP_ID] = f"twenty-{number // 20}"
            tried[names.ATTEMPT_NUMBER] = number % 20 + 1
        yield _span(run, first + number, 0.5, tried, failed=number % 7 > 0)


def fill(store: Store, project: int, spans: Iterable[Span]) -> None:
    """Store what the spans fold into."""
    sender = Sender(service_name="crm-worker")
    arrivals: list[Arrival] = []
    for item, span in enumerate(spans):
        arrivals += [Arrival(item, sender, event) for event in fold_span(span)]
        if len(arrivals) >= BATCH:
            store.submit(Batch(project, names.ORIGIN_SERVER, arrivals)).result()
            arrivals = []
    if arrivals:
        store.submit(Batch(project, names.ORIGIN_SERVER, arrivals)).result()


def _span(run: str, serial: int, seconds: float, tried: dict[str, Value], *, failed: bool) -> Span:
    start = ZERO + serial * SECOND
    return Span(
        run.encode().rjust(16, b"\1")[-16:],
        serial.to_bytes(8, "big"),
        "push",
        start,
        start + round(seconds * SECOND),
        failed=failed,
        attributes={names.WORKFLOW_NAME: "crm.sync", names.RUN_ID: run, **tried},
    )
