"""Annotations for spans that somebody else starts (D4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from flowmark_otel import names
from flowmark_otel.annotate.hook import client, tell
from flowmark_otel.annotate.options import OPERATION_KEYS, Fields, end_attributes
from flowmark_otel.model import Attempt, Refused, RunRef

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    class Annotations(TypedDict, total=False):
        """What a span can say, all of it optional.

        ``workflow``, ``run_id``: identity, else the run it is started in. ``operation``: name, else
        the span's. ``limit``, ``deadline`` (epoch milliseconds), ``timeout`` (milliseconds),
        ``system``, ``series``, ``idempotency_key`` (only its digest is carried): of an operation.
        ``retry_of``, ``parent_run_id``, ``correlation_id``, ``outcome``, ``result``: of a run.
        ``code``, ``retryable``: of a failure, which the span's status decides.
        """

        workflow: str | None
        run_id: str | None
        operation: str | None
        operation_id: str | None
        attempt: Attempt | None
        limit: int | None
        deadline: int | None
        timeout: int | None
        system: str | None
        series: str | None
        idempotency_key: str | None
        retry_of: RunRef | None
        parent_run_id: str | None
        correlation_id: str | None
        outcome: str | None
        result: Mapping[str, object] | None
        code: str | None
        retryable: bool | None


_KEYS = {
    **OPERATION_KEYS,
    "workflow": names.WORKFLOW_NAME,
    "run_id": names.RUN_ID,
    "operation": names.OPERATION_NAME,
    "operation_id": names.OPERATION_ID,
    "parent_run_id": names.PARENT_RUN_ID,
    "correlation_id": names.CORRELATION_ID,
}
_OTHERS = frozenset(
    ("attempt", "retry_of", "idempotency_key", "outcome", "result", "code", "retryable")
)


def attributes(**annotations: Unpack[Annotations]) -> dict[str, AttributeValue]:
    """Annotations as span attributes, for ``start_span(attributes=…)``.

    Given at creation they are seen by samplers, and a start is sent early (E1, E2). A wrong one is
    left out, reported and counted ``invalid``.
    """
    given: Mapping[str, object] = annotations
    fields = Fields({}, [])
    for option, key in _KEYS.items():
        fields.check(key, given.get(option))
    fields.attempt(given.get("attempt"))
    fields.retry_of(given.get("retry_of"))
    fields.idempotency_key(given.get("idempotency_key"))
    failure = (given.get("code"), given.get("retryable"))
    ends = end_attributes(failure, given.get("outcome"), given.get("result"))
    for key, value in ends.items():
        fields.check(key, value)
    fields.unknown([name for name in given if name not in _KEYS and name not in _OTHERS])
    if fields.faults:
        _report(fields.faults)
    return dict(fields.attributes)


def annotate(span: Span, **annotations: Unpack[Annotations]) -> None:
    """Annotate a span that has started, before it ends.

    A span that is not recorded, because it was sampled out or has ended, cannot be annotated any
    more: that is reported. ``attributes`` at creation, or ``workflow``, record it all the same.
    """
    found = attributes(**annotations)
    given: object = span
    if not isinstance(given, Span):
        _report([f"span is a {type(given).__name__}; give the span to annotate"])
        return
    if not found:
        return
    if not span.is_recording():
        message = "an annotated span is not recorded: it was sampled out, or has ended"
        tell(client(), names.DIAGNOSTIC_NOT_RECORDED, message)
        return
    span.set_attributes(found)
    client().say(span, found)


def _report(faults: list[str]) -> None:
    found = client()
    message = "; ".join(faults)
    if found.strict:
        tell(found, names.DIAGNOSTIC_INVALID, message)
    found.sink.put([Refused(names.INVALID, message)], found.resource)
