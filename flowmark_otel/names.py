"""Every name that leaves the process: attribute keys, event names, states, reason codes.

Names are API (contract, preamble). They stand here once and nowhere else as literals.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

PREFIX: Final = "flowmark."
SCOPE: Final = "flowmark_otel"
CAPABILITY: Final = "attempts-v1"

# -- span attributes (contract, section 1) ----------------------------------------------------
WORKFLOW_NAME: Final = "flowmark.workflow.name"
RUN_ID: Final = "flowmark.run.id"
OPERATION_NAME: Final = "flowmark.operation.name"
OPERATION_ID: Final = "flowmark.operation.id"
ATTEMPT_PREFIX: Final = "flowmark.attempt."
ATTEMPT_GROUP_ID: Final = "flowmark.attempt.group_id"
ATTEMPT_NUMBER: Final = "flowmark.attempt.number"
ATTEMPT_LIMIT: Final = "flowmark.attempt.limit"
ATTEMPT_KIND: Final = "flowmark.attempt.kind"
ATTEMPT_SERIES_NAME: Final = "flowmark.attempt.series.name"
ATTEMPT_SYSTEM_NAME: Final = "flowmark.attempt.system.name"
ATTEMPT_TIMEOUT_MS: Final = "flowmark.attempt.timeout_ms"
ATTEMPT_DEADLINE_MS: Final = "flowmark.attempt.deadline_ms"
ATTEMPT_IDEMPOTENCY_KEY: Final = "flowmark.attempt.idempotency_key"
ATTEMPT_TIME_READ: Final = "flowmark.attempt.time_read"
RETRY_OF_WORKFLOW_NAME: Final = "flowmark.retry_of.workflow.name"
RETRY_OF_RUN_ID: Final = "flowmark.retry_of.run.id"
PARENT_RUN_ID: Final = "flowmark.parent_run.id"
CORRELATION_ID: Final = "flowmark.correlation.id"
RUN_OUTCOME: Final = "flowmark.run.outcome"
RUN_RESULT_PREFIX: Final = "flowmark.run.result."
ERROR_CODE: Final = "flowmark.error.code"
ERROR_RETRYABLE: Final = "flowmark.error.retryable"
RECORD_TYPE: Final = "flowmark.record.type"

IDENTITY_KEYS: Final = (WORKFLOW_NAME, RUN_ID)
ATTEMPT_START_KEYS: Final = (
    ATTEMPT_GROUP_ID,
    ATTEMPT_NUMBER,
    ATTEMPT_LIMIT,
    ATTEMPT_KIND,
    ATTEMPT_SERIES_NAME,
    ATTEMPT_SYSTEM_NAME,
    ATTEMPT_TIMEOUT_MS,
    ATTEMPT_DEADLINE_MS,
    ATTEMPT_IDEMPOTENCY_KEY,
)
RUN_START_KEYS: Final = (RETRY_OF_WORKFLOW_NAME, RETRY_OF_RUN_ID, PARENT_RUN_ID, CORRELATION_ID)

# -- envelope attributes (contract, section 2) ------------------------------------------------
EVENT_ID: Final = "flowmark.event.id"
EVENT_NAME: Final = "flowmark.event.name"
DEFAULTED: Final = "flowmark.defaulted"
DURATION_NS: Final = "flowmark.duration_ns"
OBSERVED_NUMBER: Final = "flowmark.observed.number"
OBSERVED_OUTCOME: Final = "flowmark.observed.outcome"
OBSERVED_DURATION_NS: Final = "flowmark.observed.duration_ns"
OBSERVED_SERIES: Final = "flowmark.observed.series"
OBSERVED_SYSTEM: Final = "flowmark.observed.system"

# -- event names ------------------------------------------------------------------------------
RUN_STARTED: Final = "flowmark.run.started"
RUN_COMPLETED: Final = "flowmark.run.completed"
RUN_FAILED: Final = "flowmark.run.failed"
OPERATION_STARTED: Final = "flowmark.operation.started"
OPERATION_COMPLETED: Final = "flowmark.operation.completed"
OPERATION_FAILED: Final = "flowmark.operation.failed"
ATTEMPT_OBSERVED: Final = "flowmark.attempt.observed"

# -- parts of an event id: <run|op>-<trace>-<span>-<rest>; a part is "<run|op>-<rest>" ----------
PART_RUN_START: Final = "run-start"
PART_RUN_END: Final = "run-end"
PART_OPERATION_START: Final = "op-start"
PART_OPERATION_END: Final = "op-end"
PART_OBSERVED_PREFIX: Final = "op-observed-"

PART_OF_EVENT: Final = {
    RUN_STARTED: PART_RUN_START,
    RUN_COMPLETED: PART_RUN_END,
    RUN_FAILED: PART_RUN_END,
    OPERATION_STARTED: PART_OPERATION_START,
    OPERATION_COMPLETED: PART_OPERATION_END,
    OPERATION_FAILED: PART_OPERATION_END,
}

# -- attributes of others that are read -------------------------------------------------------
ERROR_TYPE: Final = "error.type"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"

# -- closed sets ------------------------------------------------------------------------------
KIND_REPORTED: Final = "reported"
KIND_OBSERVED: Final = "observed"
RECORD_RUN: Final = "run"
RECORD_OPERATION: Final = "operation"

STATUS_OPEN: Final = "open"
STATUS_COMPLETED: Final = "completed"
STATUS_FAILED: Final = "failed"
STATUS_UNKNOWN: Final = "unknown"

VERDICT_FIRST_TRY: Final = "first_try"
VERDICT_AFTER_RETRY: Final = "after_retry"
VERDICT_FAILED: Final = "failed"
VERDICT_OPEN: Final = "open"
VERDICT_UNDETERMINED: Final = "undetermined"

FLAG_BEYOND_LIMIT: Final = "beyond_limit"
FLAG_METADATA_DIFFERS: Final = "metadata_differs"
FLAG_METADATA_INCOMPLETE: Final = "metadata_may_be_incomplete"
FLAG_CHARACTERS_REPLACED: Final = "characters_replaced"

ORIGIN_SERVER: Final = "server"
ORIGIN_BROWSER: Final = "browser"

KEY_INGEST: Final = "ingest"
KEY_READ: Final = "read"
KEY_ADMIN: Final = "admin"
KEY_BROWSER: Final = "browser"

# -- results of judging one event (contract, sections 3 and 4) ---------------------------------
STORED: Final = "stored"
DUPLICATE: Final = "duplicate"
CUSTODY: Final = "custody"
CONFLICT: Final = "conflict"
INVALID: Final = "invalid"
LIMIT: Final = "limit"
DEAD_LETTERED: Final = "dead_lettered"
DROPPED: Final = "dropped"

# -- why a delivery failed (contract, section 3) ------------------------------------------------
REASON_UNACKNOWLEDGED: Final = "unacknowledged"
REASON_COUNT_MISMATCH: Final = "count_mismatch"
REASON_MALFORMED_RECEIPT: Final = "malformed_receipt"
REASON_REJECTED: Final = "rejected"
REASON_TOO_LARGE: Final = "too_large"
REASON_UNAUTHORIZED: Final = "unauthorized"
REASON_UNAVAILABLE: Final = "unavailable"
ACCEPTED: Final = "accepted"
"""The state of ordinary events that were answered with an OTLP success without receipt."""

STATE_REJECTED: Final = "rejected"
STATE_UNKNOWN: Final = "unknown"

UNKNOWN_NAME: Final = "unknown"
UNKNOWN_SERVICE: Final = "unknown_service"
REDACTED: Final = "[redacted]"

# -- the closed sets as types, for answers and their OpenAPI document (contract, section 5) ------
Status: TypeAlias = Literal["open", "completed", "failed"]
RunStatus: TypeAlias = Literal["open", "completed", "failed", "unknown"]
Ended: TypeAlias = Literal["completed", "failed"]
Verdict: TypeAlias = Literal["first_try", "after_retry", "failed", "open", "undetermined"]
Flag: TypeAlias = Literal[
    "beyond_limit", "metadata_differs", "metadata_may_be_incomplete", "characters_replaced"
]
Kind: TypeAlias = Literal["reported", "observed"]
Origin: TypeAlias = Literal["server", "browser"]
EvidenceState: TypeAlias = Literal["stored", "rejected"]
Problem: TypeAlias = Literal["gap", "open", "unresolved", "conflict", "rejected"]
