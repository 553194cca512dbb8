"""Spans as folding reads them, and a real store that they are put into and read back from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from flowmark_otel import names
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.store import Arrival, Batch, Store, Verdict, open_store
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Refused, Sender, Span, Value
from tests.support.urls import Place, url_of

ZERO: Final = 1_796_045_879_000_000_000
SECOND: Final = 1_000_000_000
PROJECT: Final = 1
SENDER: Final = Sender("tests/1", "crm-sync", "1.2.3", None)


def span(
    number: int,
    given: Mapping[str, Value],
    *,
    failed: bool = False,
    start: int = ZERO,
    end: int | None = None,
    trace: int = 1,
    name: str = "push-to-crm",
) -> Span:
    """A span of one second; ``number`` is its span id."""
    end = start + SECOND if end is None else end
    trace_id, span_id = trace.to_bytes(16, "big"), number.to_bytes(8, "big")
    return Span(trace_id, span_id, name, start, end, failed, given, "crm-sync")


def attempt(
    group_id: str,
    number: int,
    *,
    run_id: str = "r1",
    workflow: str = "crm.sync",
    operation: str = "push-to-crm",
    **further: Value,
) -> dict[str, Value]:
    """The attributes of an attempt; further ones are named without ``flowmark.`` and with _."""
    return {
        **operation_of(run_id, workflow=workflow, operation=operation),
        names.ATTEMPT_GROUP_ID: group_id,
        names.ATTEMPT_NUMBER: number,
        **{f"flowmark.{key.replace('__', '.')}": value for key, value in further.items()},
    }


def operation_of(
    run_id: str = "r1", *, workflow: str = "crm.sync", operation: str = "push-to-crm"
) -> dict[str, Value]:
    """The attributes of an operation without attempt."""
    return {
        names.WORKFLOW_NAME: workflow,
        names.RUN_ID: run_id,
        names.OPERATION_NAME: operation,
    }


def run_of(
    run_id: str = "r1",
    *,
    workflow: str = "crm.sync",
    outcome: str = "complete",
    retry_of: tuple[str, str] | None = None,
    **further: Value,
) -> dict[str, Value]:
    """The attributes of a run; further ones as in ``attempt``."""
    given: dict[str, Value] = {
        names.WORKFLOW_NAME: workflow,
        names.RUN_ID: run_id,
        names.RUN_OUTCOME: outcome,
        **{f"flowmark.{key.replace('__', '.')}": value for key, value in further.items()},
    }
    if retry_of is not None:
        given[names.RETRY_OF_WORKFLOW_NAME], given[names.RETRY_OF_RUN_ID] = retry_of
    return given


class Ingested:
    """A store and its reader; each request is one batch, judged and durable on return."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.reader = Reader(store)

    def send(self, *spans: Span, project: int = PROJECT, origin: str = "server") -> Verdict:
        """Fold and store spans as one request."""
        return self.put((e for one in spans for e in fold_span(one)), project, origin)

    def put(
        self,
        events: Iterable[Envelope | Refused],
        project: int = PROJECT,
        origin: str = "server",
    ) -> Verdict:
        """Store events as one request."""
        arrivals = [Arrival(item, SENDER, event) for item, event in enumerate(events)]
        return self.store.submit(Batch(project, origin, arrivals)).result(30)

    def only_key(self, project: int = PROJECT) -> str:
        """The key of the one run of a project."""
        (run,) = self.reader.runs(project).items
        return run.key


@contextmanager
def ingested(store: Place) -> Iterator[Ingested]:
    """A store, empty where it is new."""
    opened = open_store(url_of(store))
    try:
        yield Ingested(opened)
    finally:
        opened.close()
