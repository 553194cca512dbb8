"""Flowmark for OpenTelemetry: which spans were attempts of one thing."""

from flowmark_otel.annotate import (
    AttemptHandle,
    AttemptSignal,
    Operation,
    OperationDefinition,
    Workflow,
    WorkflowDefinition,
    annotate,
    attributes,
    current_attempt,
    workflow,
)
from flowmark_otel.capture import FlowmarkSampler, FlowmarkSpanProcessor
from flowmark_otel.client import FlowmarkSpanExporter, configure, flush, shutdown
from flowmark_otel.errors import (
    AttemptTimeoutError,
    ConfigurationError,
    DeliveryError,
    FlowmarkError,
    InvalidUse,
)
from flowmark_otel.model import (
    Attempt,
    Diagnostic,
    Failure,
    ObservedAttempt,
    RunRef,
    Unacknowledged,
)

__all__ = [
    "Attempt",
    "AttemptHandle",
    "AttemptSignal",
    "AttemptTimeoutError",
    "ConfigurationError",
    "DeliveryError",
    "Diagnostic",
    "Failure",
    "FlowmarkError",
    "FlowmarkSampler",
    "FlowmarkSpanExporter",
    "FlowmarkSpanProcessor",
    "InvalidUse",
    "ObservedAttempt",
    "Operation",
    "OperationDefinition",
    "RunRef",
    "Unacknowledged",
    "Workflow",
    "WorkflowDefinition",
    "annotate",
    "attributes",
    "configure",
    "current_attempt",
    "flush",
    "shutdown",
    "workflow",
]
