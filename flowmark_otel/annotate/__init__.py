"""The recording API: runs, operations and attempts, as plain OpenTelemetry spans underneath.

It knows no SDK and no delivery. Spans carry all they have to say from their creation on; where no
processor of ours captures a span, what it means is folded here and given to the sink (E2).
"""

from flowmark_otel.annotate.attempt import AttemptHandle, current_attempt
from flowmark_otel.annotate.definition import WorkflowDefinition
from flowmark_otel.annotate.operation import Operation
from flowmark_otel.annotate.options import OperationDefinition
from flowmark_otel.annotate.plain import annotate, attributes
from flowmark_otel.annotate.signal import AttemptSignal
from flowmark_otel.annotate.workflow import Workflow, workflow

__all__ = [
    "AttemptHandle",
    "AttemptSignal",
    "Operation",
    "OperationDefinition",
    "Workflow",
    "WorkflowDefinition",
    "annotate",
    "attributes",
    "current_attempt",
    "workflow",
]
