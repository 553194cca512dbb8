"""One run in a real store with one of each of the seven marks, as spans and an early start."""

from __future__ import annotations

import hashlib
from typing import Final

from flowmark_otel import names
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Span, Value
from tests.support.site import Site

SECOND: Final = 1_000_000_000
ZERO: Final = 1_773_234_004_740_000_000
TRACE: Final = bytes(range(16))
GROUP: Final = "customer-batch-42"
PUSH: Final = "push-to-crm"
RUN: Final = {names.WORKFLOW_NAME: "crm.sync", names.RUN_ID: "ugly"}


def attempt(
    number: int, start: float, end: float, code: str | None = None, *, span: int = 0, **more: Value
) -> Span:
    """A span of one attempt, times in seconds after ``ZERO``; failed with a code."""
    attributes: dict[str, Value] = {
        **RUN,
        names.ATTEMPT_GROUP_ID: GROUP,
        names.ATTEMPT_NUMBER: number,
        names.ATTEMPT_LIMIT: 8,
        **more,
    }
    if code:
        attributes[names.ERROR_CODE] = code
        attributes[names.ERROR_RETRYABLE] = True
    return Span(
        trace_id=TRACE,
        span_id=(span or number).to_bytes(8, "big"),
        name=PUSH,
        start_time_unix_nano=ZERO + round(start * SECOND),
        end_time_unix_nano=ZERO + round(end * SECOND),
        failed=code is not None,
        attributes=attributes,
    )


def run(run_id: str, retry_of: str | None = None, *, failed: bool = False) -> Span:
    """The span of a run of the same workflow, with outcome and result."""
    attributes: dict[str, Value] = {
        names.WORKFLOW_NAME: "crm.sync",
        names.RUN_ID: run_id,
        names.RUN_OUTCOME: "partial",
        f"{names.RUN_RESULT_PREFIX}imported": 50,
    }
    if retry_of:
        attributes[names.RETRY_OF_WORKFLOW_NAME] = "crm.sync"
        attributes[names.RETRY_OF_RUN_ID] = retry_of
    return Span(
        trace_id=TRACE,
        span_id=hashlib.blake2b(run_id.encode(), digest_size=8).digest(),
        name="sync",
        start_time_unix_nano=ZERO - SECOND,
        end_time_unix_nano=ZERO + 12 * SECOND,
        failed=failed,
        attributes=attributes,
    )


def send(site: Site) -> str:
    """Store the run with every mark, and return its key."""
    site.send(
        attempt(1, 0.0, 0.6, "CRM_UNAVAILABLE"),
        attempt(2, 1.05, 1.79, "CRM_TIMEOUT"),
        attempt(6, 8.4, 9.24),
        attempt(7, 9.9, 10.21, "CRM_DUPLICATE_BATCH"),
        run("ugly", "never-seen", failed=True),
    )
    # Sent by itself: a batch that is refused as a whole is answered so.
    site.send(attempt(2, 1.06, 1.66, span=8))
    start = fold_span(attempt(5, 5.31, 6.0))[0]
    assert isinstance(start, Envelope)
    site.start(start)
    return site.run_key(run_id="ugly")
