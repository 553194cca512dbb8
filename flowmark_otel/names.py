"""Every name that leaves the process: attribute keys, event names, states, reason codes.

Names are API (contract, preamble). They stand here once and nowhere else as literals.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

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
ERROR_RESULT_REJECTED: Final = "result_rejected"
"""Error code of a try that returned what its retry policy does not take for a success."""

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
BROWSER_PREFIX: Final = "browser."
"""What a workflow is called under that a browser key sent (A20)."""

KEY_INGEST: Final = "ingest"
KEY_READ: Final = "read"
KEY_ADMIN: Final = "admin"
KEY_BROWSER: Final = "browser"

# -- signals: what others write and is read as attempts (contract, section 8) --------------------
SIGNALS_SAFE: Final = "safe"
SIGNALS_NONE: Final = "none"
SIGNAL_CELERY: Final = "celery"
SIGNAL_REMOULADE: Final = "remoulade"
SIGNAL_HATCHET: Final = "hatchet"
SIGNAL_AWS_HEADERS: Final = "aws_headers"
SIGNAL_AZURE_CORE: Final = "azure_core"
SIGNAL_GCP_PUBSUB: Final = "gcp_pubsub"
SIGNAL_NAMES: Final = (
    *(SIGNAL_CELERY, SIGNAL_REMOULADE, SIGNAL_HATCHET, SIGNAL_AWS_HEADERS),
    *(SIGNAL_AZURE_CORE, SIGNAL_GCP_PUBSUB),
)

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
REASON_TIMEOUT: Final = "timeout"
REASON_QUEUE_FULL: Final = "queue_full"
REASON_SHUTDOWN: Final = "shutdown"
REASON_SPOOL_FULL: Final = "spool_full"
REASON_EXPIRED: Final = "expired"
"""Of duplicates: their run expired or was deleted, so nothing of them is kept (section 4)."""
REASON_NOT_SENT: Final = "not_sent"
"""Refused by our own validation, or impossible to encode: it never left the process."""

# -- dead letters: the keys of a line, and of the log record that carries one (section 9) --------
FAILURE_ATTEMPTS: Final = "failure.attempts"
FAILURE_EXCEPTION: Final = "failure.exception"
FAILURE_MESSAGE: Final = "failure.message"
FAILURE_NODE: Final = "failure.node"
LETTER_TIME: Final = "time"
LETTER_INPUT: Final = "input"
UNREAD: Final = "flowmark.unread"
"""In OTLP/JSON, in place of a part that is no protobuf message: its bytes in base64."""

# -- states of a recorded event that only a sender knows (contract, section 3) ------------------
UNACKNOWLEDGED: Final = "unacknowledged"
QUEUED: Final = "queued"
SPOOLED: Final = "spooled"
ACCEPTED: Final = "accepted"
"""The state of ordinary events that were answered with an OTLP success without receipt."""

DELIVERED: Final = frozenset((STORED, DUPLICATE, CUSTODY, ACCEPTED))
"""The states of events that were acknowledged; events in any other state were not."""
DELIVERY_STATES: Final = (
    *(STORED, DUPLICATE, CUSTODY, ACCEPTED, CONFLICT, INVALID, LIMIT),
    *(UNACKNOWLEDGED, DEAD_LETTERED, DROPPED, QUEUED, SPOOLED),
)

# -- diagnostics: what a client reports about its own recording (contract, sections 2, 3 and 6) --
DIAGNOSTIC_METADATA_CHANGED: Final = "metadata_changed"
DIAGNOSTIC_LATE_REPORT: Final = "late_report"
DIAGNOSTIC_INVALID: Final = INVALID
"""An event, or a call, that broke a rule and was not sent."""
DIAGNOSTIC_CALLBACK_FAILED: Final = "callback_failed"
"""A callback of the application raised; it was caught."""
DIAGNOSTIC_INTERNAL: Final = "internal"
"""A defect of this package, caught where it cannot reach the application."""
DIAGNOSTIC_RESUMED: Final = "resumed"
"""What could not be delivered, or was not acknowledged, is again."""
DIAGNOSTIC_CONFIGURATION: Final = "configuration"
"""A setting that cannot be used; its default stands in."""
DIAGNOSTIC_ALREADY_ENDED: Final = "already_ended"
"""A run or operation was ended again in another way; the first end stands."""
DIAGNOSTIC_NOT_RECORDED: Final = "not_recorded"
"""A span was annotated that nothing records: unsampled, or ended already."""
DIAGNOSTIC_SPOOL_FAILED: Final = "spool_failed"
"""The disk refused something of the spool; the message says what is less safe for it."""
DIAGNOSTIC_SPOOL_DAMAGED: Final = "spool_damaged"
"""The spool held something that is no record or of a newer version; it was set aside."""
DIAGNOSTIC_CODES: Final = (
    *(DIAGNOSTIC_METADATA_CHANGED, DIAGNOSTIC_LATE_REPORT, DIAGNOSTIC_INVALID),
    *(DIAGNOSTIC_CONFIGURATION, DIAGNOSTIC_ALREADY_ENDED, DIAGNOSTIC_NOT_RECORDED),
    *(DIAGNOSTIC_CALLBACK_FAILED, DIAGNOSTIC_INTERNAL, DIAGNOSTIC_RESUMED),
    *(CONFLICT, LIMIT, DEAD_LETTERED, DROPPED),
    *(REASON_UNACKNOWLEDGED, REASON_MALFORMED_RECEIPT, REASON_COUNT_MISMATCH, REASON_REJECTED),
    *(REASON_TOO_LARGE, REASON_UNAUTHORIZED, REASON_UNAVAILABLE, REASON_TIMEOUT),
    *(REASON_QUEUE_FULL, REASON_SHUTDOWN, REASON_SPOOL_FULL),
    *(DIAGNOSTIC_SPOOL_FAILED, DIAGNOSTIC_SPOOL_DAMAGED),
)

# -- why an item is on the list of evidence (contract, section 5) ---------------------------------
EVIDENCE_HIGHER_NUMBER: Final = "higher_number_known"
"""A gap: a higher number is known and implies these."""
EVIDENCE_NO_END: Final = "no_end"
EVIDENCE_NOT_STORED: Final = "run_not_stored"
"""A retry reference names a run of which nothing is stored."""
EVIDENCE_EVENT_ID: Final = "event_id"
"""A conflict: its event id was accepted with another payload."""
EVIDENCE_OPERATION_ID: Final = "operation_id"
"""A conflict: its operation id was accepted with another name or other attempt fields."""
EVIDENCE_SECOND_END: Final = "second_end"
EVIDENCE_PLACE: Final = "place"
"""A conflict: this number of the group was accepted with another operation id."""

STATE_REJECTED: Final = "rejected"
STATE_UNKNOWN: Final = "unknown"

UNKNOWN_NAME: Final = "unknown"
UNKNOWN_SERVICE: Final = "unknown_service"
REDACTED: Final = "[redacted]"

# -- metrics (contract, section 10) ---------------------------------------------------------------
ATTEMPT_STATUS: Final = "flowmark.attempt.status"
VERDICT: Final = "flowmark.verdict"
DELIVERY_STATE: Final = "flowmark.delivery.state"
DELIVERY_REASON: Final = "flowmark.delivery.reason"
DIAGNOSTIC_CODE: Final = "flowmark.diagnostic.code"
OTHER_NAMES: Final = "_other"
"""Stands for workflow and operation names beyond the limit of a metric."""


class Metric(NamedTuple):
    """A metric: its OpenTelemetry name, its unit, what it says, the attributes of its points."""

    name: str
    unit: str
    says: str
    attributes: tuple[str, ...] = ()


_OF_OPERATIONS: Final = (WORKFLOW_NAME, OPERATION_NAME)

ATTEMPTS_METRIC: Final = Metric(
    "flowmark.attempts", "{attempt}", "Attempts that ended.", (*_OF_OPERATIONS, ATTEMPT_STATUS)
)
OPERATIONS_METRIC: Final = Metric(
    "flowmark.operations", "{operation}", "Operations that ended.", (*_OF_OPERATIONS, VERDICT)
)
ATTEMPT_DURATION_METRIC: Final = Metric(
    "flowmark.attempt.duration",
    "s",
    "Durations of attempts that ended.",
    (*_OF_OPERATIONS, ATTEMPT_STATUS),
)
TIME_LOST_METRIC: Final = Metric(
    "flowmark.operation.time_lost",
    "s",
    "Failed attempts that were tried again, and the time between consecutive attempts.",
    _OF_OPERATIONS,
)
DELIVERY_METRIC: Final = Metric(
    "flowmark.delivery.events",
    "{event}",
    "Recorded events, each in one state.",
    (DELIVERY_STATE, DELIVERY_REASON),
)
DIAGNOSTICS_METRIC: Final = Metric(
    "flowmark.diagnostics",
    "{diagnostic}",
    "What was reported about recording and delivery.",
    (DIAGNOSTIC_CODE,),
)
QUEUE_SIZE_METRIC: Final = Metric(
    "flowmark.queue.size", "{event}", "Events in memory that have no final state."
)
SPOOL_SIZE_METRIC: Final = Metric("flowmark.spool.size", "By", "Bytes of the spool on disk.")
SPOOL_AGE_METRIC: Final = Metric(
    "flowmark.spool.age", "s", "Age of the oldest undelivered record of the spool."
)
METRICS: Final = (
    *(ATTEMPTS_METRIC, OPERATIONS_METRIC, ATTEMPT_DURATION_METRIC, TIME_LOST_METRIC),
    *(DELIVERY_METRIC, DIAGNOSTICS_METRIC, QUEUE_SIZE_METRIC),
    *(SPOOL_SIZE_METRIC, SPOOL_AGE_METRIC),
)

# Of the backend, beside those of attempts, and DELIVERY_METRIC (events judged) and
# QUEUE_SIZE_METRIC (events that wait). It has no spool.
TRANSPORT: Final = "flowmark.transport"
REQUEST_KIND: Final = "flowmark.request.kind"
REQUEST_OUTCOME: Final = "flowmark.request.outcome"

REQUESTS_METRIC: Final = Metric(
    "flowmark.server.requests",
    "{request}",
    "Requests answered.",
    (TRANSPORT, REQUEST_KIND, REQUEST_OUTCOME),
)
IN_FLIGHT_METRIC: Final = Metric(
    "flowmark.server.in_flight", "By", "Bodies of requests that are being judged."
)
READY_METRIC: Final = Metric(
    "flowmark.server.ready", "1", "Whether requests can be taken now, as /readyz says."
)
WORKERS_METRIC: Final = Metric(
    "flowmark.server.workers", "{process}", "Processes that take requests."
)
WORKER_DEATHS_METRIC: Final = Metric(
    "flowmark.server.worker_deaths", "{process}", "Worker processes that ended and were replaced."
)
STORE_WRITE_METRIC: Final = Metric(
    "flowmark.store.write.duration",
    "s",
    "From the submission of a request's events until they are durable.",
)
STORE_SIZE_METRIC: Final = Metric(
    "flowmark.store.size", "By", "The store on disk, its log included."
)
SERVER_METRICS: Final = (
    *(ATTEMPTS_METRIC, OPERATIONS_METRIC, ATTEMPT_DURATION_METRIC, TIME_LOST_METRIC),
    *(DIAGNOSTICS_METRIC, DELIVERY_METRIC, QUEUE_SIZE_METRIC, REQUESTS_METRIC, IN_FLIGHT_METRIC),
    *(READY_METRIC, WORKERS_METRIC, WORKER_DEATHS_METRIC),
    *(STORE_WRITE_METRIC, STORE_SIZE_METRIC),
)

# Of the collector, by node and by pipeline (contract, section 9), beside READY_METRIC and
# IN_FLIGHT_METRIC.
NODE: Final = "flowmark.node"
NODE_KIND: Final = "flowmark.node.kind"
PIPELINE: Final = "flowmark.pipeline"
PIPELINE_OUTCOME: Final = "flowmark.pipeline.outcome"
_OF_NODES: Final = (NODE_KIND, NODE)

NODE_RECEIVED_METRIC: Final = Metric(
    "flowmark.collector.received",
    "{item}",
    "Spans, log records, events or letters that came to a node.",
    _OF_NODES,
)
NODE_MESSAGES_METRIC: Final = Metric(
    "flowmark.collector.messages", "{message}", "Messages that came to a node.", _OF_NODES
)
NODE_FAILED_METRIC: Final = Metric(
    "flowmark.collector.failed_messages",
    "{message}",
    "Messages that failed at a node, all tries included.",
    _OF_NODES,
)
NODE_FOLDED_METRIC: Final = Metric(
    "flowmark.collector.folded", "{event}", "Events that a connector made.", _OF_NODES
)
NODE_FORWARDED_METRIC: Final = Metric(
    "flowmark.collector.forwarded", "{item}", "Items that who comes next has taken.", _OF_NODES
)
NODE_REFUSED_METRIC: Final = Metric(
    "flowmark.collector.refused",
    "{item}",
    "Items that did not get through, by reason.",
    (*_OF_NODES, DELIVERY_REASON),
)
NODE_DROPPED_METRIC: Final = Metric(
    "flowmark.collector.dropped", "{item}", "Items given up by on_error: continue.", _OF_NODES
)
NODE_LETTERS_METRIC: Final = Metric(
    "flowmark.collector.dead_letters", "{item}", "Items routed to an error port.", _OF_NODES
)
NODE_RETRIES_METRIC: Final = Metric(
    "flowmark.collector.retries", "{try}", "Tries after the first one of a message.", _OF_NODES
)
NODE_READY_METRIC: Final = Metric(
    "flowmark.collector.node.ready", "1", "Whether a node takes messages now.", _OF_NODES
)
NODE_SPOOL_SIZE_METRIC: Final = Metric(
    "flowmark.collector.spool.size", "By", "Bytes of a node's spool on disk.", _OF_NODES
)
NODE_SPOOL_AGE_METRIC: Final = Metric(
    "flowmark.collector.spool.age", "s", "Age of the oldest record of a node's spool.", _OF_NODES
)
PIPELINE_MESSAGES_METRIC: Final = Metric(
    "flowmark.collector.pipeline.messages",
    "{message}",
    "Messages of a pipeline by how they ended for their sender.",
    (PIPELINE, PIPELINE_OUTCOME),
)
COLLECTOR_METRICS: Final = (
    *(NODE_RECEIVED_METRIC, NODE_MESSAGES_METRIC, NODE_FAILED_METRIC, NODE_FOLDED_METRIC),
    *(NODE_FORWARDED_METRIC, NODE_REFUSED_METRIC, NODE_DROPPED_METRIC, NODE_LETTERS_METRIC),
    *(NODE_RETRIES_METRIC, NODE_READY_METRIC, NODE_SPOOL_SIZE_METRIC, NODE_SPOOL_AGE_METRIC),
    *(PIPELINE_MESSAGES_METRIC, READY_METRIC, IN_FLIGHT_METRIC),
)

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
EvidenceReason: TypeAlias = Literal[
    "higher_number_known",
    "no_end",
    "run_not_stored",
    "event_id",
    "operation_id",
    "second_end",
    "place",
    "conflict",
    "invalid",
    "limit",
]
Counted: TypeAlias = Literal["stored", "duplicate", "rejected"]
CountedReason: TypeAlias = Literal["expired", "conflict", "invalid", "limit"]
