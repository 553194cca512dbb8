"""Envelopes made by hand, and short ways to put them into a store and to look at its rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Table, select

from flowmark_otel import names
from flowmark_otel.backend.store import Arrival, Batch, Store, Verdict
from flowmark_otel.model import Envelope, Refused, Sender, Value

NOW = 1_700_000_000_000_000_000
SENDER = Sender("test/1", "crm")
WAIT = 30
WORKFLOW = "crm.sync"
RUN = "run-1"
OPERATION = "push-to-crm"


def span(number: int) -> tuple[bytes, bytes]:
    """Trace and span id of the span of this number; all in one trace."""
    return bytes(15) + b"\x01", number.to_bytes(8, "big")


def op_event(
    event: str,
    number: int,
    attempt: tuple[str, int] | None = None,
    part: str | None = None,
    /,
    **given: Value,
) -> Envelope:
    """An event of the operation of span ``number``.

    ``given`` by the last words of its keys; ``at`` is its time, epoch nanoseconds.
    """
    at = int(given.pop("at", NOW))
    keys = {
        "workflow": names.WORKFLOW_NAME,
        "run": names.RUN_ID,
        "operation": names.OPERATION_NAME,
        "operation_id": names.OPERATION_ID,
        "limit": names.ATTEMPT_LIMIT,
        "kind": names.ATTEMPT_KIND,
        "series": names.ATTEMPT_SERIES_NAME,
        "system": names.ATTEMPT_SYSTEM_NAME,
        "timeout_ms": names.ATTEMPT_TIMEOUT_MS,
        "deadline_ms": names.ATTEMPT_DEADLINE_MS,
        "idempotency_key": names.ATTEMPT_IDEMPOTENCY_KEY,
        "duration": names.DURATION_NS,
        "code": names.ERROR_CODE,
        "defaulted": names.DEFAULTED,
    }
    attributes: dict[str, Value] = {
        names.WORKFLOW_NAME: WORKFLOW,
        names.RUN_ID: RUN,
        names.OPERATION_NAME: OPERATION,
        names.OPERATION_ID: f"op-{number}",
    }
    if attempt is not None:
        attributes[names.ATTEMPT_GROUP_ID], attributes[names.ATTEMPT_NUMBER] = attempt
    attributes |= {keys[name]: value for name, value in given.items()}
    return Envelope(event, *span(number), part or names.PART_OF_EVENT[event], at, attributes)


def started(number: int, attempt: tuple[str, int] | None = None, /, **given: Value) -> Envelope:
    """The start of the operation of span ``number``."""
    return op_event(names.OPERATION_STARTED, number, attempt, **given)


def completed(number: int, attempt: tuple[str, int] | None = None, /, **given: Value) -> Envelope:
    """Its end, completed."""
    return op_event(names.OPERATION_COMPLETED, number, attempt, **given)


def failed(number: int, attempt: tuple[str, int] | None = None, /, **given: Value) -> Envelope:
    """Its end, failed."""
    return op_event(names.OPERATION_FAILED, number, attempt, **given)


def observed(number: int, ordinal: int, /, **given: Value) -> Envelope:
    """A try that was observed inside the operation of span ``number``."""
    part = f"{names.PART_OBSERVED_PREFIX}{NOW}-observed-{ordinal}"
    made = op_event(names.ATTEMPT_OBSERVED, number, None, part, **given)
    made.attributes[names.OBSERVED_NUMBER] = ordinal
    return made


def run_event(event: str, number: int, *, at: int = NOW, **given: Value) -> Envelope:
    """An event of the run of span ``number``."""
    keys = {
        "workflow": names.WORKFLOW_NAME,
        "run": names.RUN_ID,
        "retry_workflow": names.RETRY_OF_WORKFLOW_NAME,
        "retry_run": names.RETRY_OF_RUN_ID,
        "parent": names.PARENT_RUN_ID,
        "correlation": names.CORRELATION_ID,
        "outcome": names.RUN_OUTCOME,
    }
    attributes: dict[str, Value] = {names.WORKFLOW_NAME: WORKFLOW, names.RUN_ID: RUN}
    attributes |= {keys[name]: value for name, value in given.items()}
    return Envelope(event, *span(number), names.PART_OF_EVENT[event], at, attributes)


def batch(
    events: Iterable[Envelope | Refused],
    project_id: int = 1,
    origin: str = names.ORIGIN_SERVER,
) -> Batch:
    """One request, each event an item of its own."""
    arrivals = [Arrival(item, SENDER, event) for item, event in enumerate(events)]
    return Batch(project_id, origin, arrivals)


def put(store: Store, *events: Envelope | Refused, project_id: int = 1) -> Verdict:
    """Judge and store one request."""
    return store.submit(batch(events, project_id)).result(WAIT)


def rows(store: Store, table: Table) -> list[dict[str, Any]]:
    """All rows of a table, in the order of its primary key."""
    asked = select(table).order_by(*table.primary_key.columns)
    with store.engine.connect() as connection:
        return [dict(row) for row in connection.execute(asked).mappings()]
