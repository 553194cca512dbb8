"""Evidence of one span → its envelopes (contract, section 2).

One function with several call sites: the SDK, the collector, the backend. Same span in, same
event ids and digests out, any number of times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from flowmark_otel import names
from flowmark_otel.fold.observed import fold_observed
from flowmark_otel.fold.redact import (
    clean_error_type,
    redact_result,
    served_idempotency_key,
)
from flowmark_otel.model import Envelope, Refused, Span, Value, event_id
from flowmark_otel.validate import (
    CARRIED_BY,
    MAX_INT64,
    SELF_REFERENCE,
    Evidence,
    clean_default,
    evidence_of,
    rule_of,
    self_reference,
    shown_key,
)
from flowmark_otel.validate.secrets import redact_text


def fold_span(span: Span) -> list[Envelope | Refused]:
    """All events of a finished span, in the order in which they are judged.

    Empty if the span is neither run nor operation. A refused event has no item position: the
    caller knows it.
    """
    return fold_rest(span, ())[0]


def fold_rest(span: Span, sent: Collection[str]) -> tuple[list[Envelope | Refused], bool]:
    """The events of a finished span but the starts that were sent, and whether it still has those.

    ``sent``: those starts, as parts of event ids (E1). Otherwise as ``fold_span``.
    """
    evidence = evidence_of(span)
    if evidence is None:
        return [], not sent
    if evidence.unusable:
        return [Refused(names.INVALID, evidence.unusable)], not sent
    folding = _Folding(span, evidence)
    out: list[Envelope | Refused] = []
    run_sent, operation_sent = names.PART_RUN_START in sent, names.PART_OPERATION_START in sent
    if evidence.is_run and not run_sent:
        out.append(folding.run_start())
    if evidence.is_operation:
        if not operation_sent:
            out.append(folding.operation_start())
        if span.events:
            out.extend(fold_observed(span, folding.operation_base(), folding.identity_faults()))
        out.append(folding.operation_end())
    if evidence.ends_run:
        out.append(folding.run_end())
    return out, run_sent <= evidence.is_run and operation_sent <= evidence.is_operation


def fold_starts(span: Span) -> list[Envelope | Refused]:
    """The starts alone, of a span that need not have ended (E1)."""
    evidence = evidence_of(span)
    if evidence is None:
        return []
    if evidence.unusable:
        return [Refused(names.INVALID, evidence.unusable)]
    folding = _Folding(span, evidence)
    out: list[Envelope | Refused] = []
    if evidence.is_run:
        out.append(folding.run_start())
    if evidence.is_operation:
        out.append(folding.operation_start())
    return out


class _Folding:
    """One span being folded: its values with identity filled in, and what was defaulted."""

    __slots__ = ("_fields", "broken", "defaulted", "replaced", "span", "values")

    def __init__(self, span: Span, evidence: Evidence) -> None:
        self.span = span
        values = self.values = evidence.values
        broken = evidence.broken
        self.defaulted: list[str] = []  # of the identity keys, sorted as they are looked at
        self.replaced = False
        self._fields: dict[str, Value] | None = None
        if evidence.is_operation:
            if names.OPERATION_ID not in values and names.OPERATION_ID not in broken:
                values[names.OPERATION_ID] = span.span_id.hex()
                self.defaulted.append(names.OPERATION_ID)
            if names.OPERATION_NAME not in values and names.OPERATION_NAME not in broken:
                self._default(names.OPERATION_NAME, span.name)
            key = values.get(names.ATTEMPT_IDEMPOTENCY_KEY)
            if key is not None:
                values[names.ATTEMPT_IDEMPOTENCY_KEY] = served_idempotency_key(str(key))
        if names.RUN_ID not in values and names.RUN_ID not in broken:
            values[names.RUN_ID] = span.trace_id.hex()
            self.defaulted.append(names.RUN_ID)
        if names.WORKFLOW_NAME not in values and names.WORKFLOW_NAME not in broken:
            service = span.service_name
            if isinstance(service, str):
                self._default(names.WORKFLOW_NAME, service)
            else:
                values[names.WORKFLOW_NAME] = names.UNKNOWN_SERVICE
                self.defaulted.append(names.WORKFLOW_NAME)
        if evidence.is_run and self_reference(values):
            broken = {**broken, names.RETRY_OF_RUN_ID: SELF_REFERENCE}
        self.broken = broken

    def _default(self, key: str, value: str) -> None:
        self.values[key], replaced = clean_default(value)
        self.replaced |= replaced
        self.defaulted.append(key)

    def operation_base(self) -> dict[str, Value]:
        """Identity and operation keys, which every event of the operation carries."""
        values = self.values
        base = {
            names.WORKFLOW_NAME: values.get(names.WORKFLOW_NAME, ""),
            names.RUN_ID: values.get(names.RUN_ID, ""),
            names.OPERATION_NAME: values.get(names.OPERATION_NAME, ""),
            names.OPERATION_ID: values.get(names.OPERATION_ID, ""),
        }
        if self.defaulted:
            base[names.DEFAULTED] = ",".join(self.defaulted)
        return base

    def identity_faults(self) -> str:
        """The faults of the keys that an observed try carries, or an empty text."""
        return self._faults(
            key
            for key in self.broken
            if key in names.IDENTITY_KEYS or key in (names.OPERATION_NAME, names.OPERATION_ID)
        )

    def operation_start(self) -> Envelope | Refused:
        """The start of the operation: start fields and nothing else."""
        refused = self._refusal(names.PART_OPERATION_START)
        if refused is not None:
            return refused
        return self._envelope(
            names.OPERATION_STARTED,
            names.PART_OPERATION_START,
            self.span.start_time_unix_nano,
            self._operation_fields(),
        )

    def operation_end(self) -> Envelope | Refused:
        """The end of the operation: the same start fields, and how it ended."""
        refused = self._refusal(names.PART_OPERATION_END)
        if refused is not None:
            return refused
        attributes = self._operation_fields().copy()
        time_read = self.values.get(names.ATTEMPT_TIME_READ)
        if time_read is not None:
            attributes[names.ATTEMPT_TIME_READ] = time_read
        event = names.OPERATION_FAILED if self.span.failed else names.OPERATION_COMPLETED
        return self._end(event, names.PART_OPERATION_END, attributes)

    def run_start(self) -> Envelope | Refused:
        """The start of the run."""
        refused = self._refusal(names.PART_RUN_START)
        if refused is not None:
            return refused
        return self._envelope(
            names.RUN_STARTED,
            names.PART_RUN_START,
            self.span.start_time_unix_nano,
            self._run_fields(),
        )

    def run_end(self) -> Envelope | Refused:
        """The end of the run: the same start fields, outcome and result."""
        refused = self._refusal(names.PART_RUN_END)
        if refused is not None:
            return refused
        attributes = self._run_fields()
        for key, value in self.values.items():
            if key == names.RUN_OUTCOME:
                attributes[key] = value
            elif key.startswith(names.RUN_RESULT_PREFIX):
                attributes[key] = redact_result(key, value)
        event = names.RUN_FAILED if self.span.failed else names.RUN_COMPLETED
        return self._end(event, names.PART_RUN_END, attributes)

    def _operation_fields(self) -> dict[str, Value]:
        """What both events of the operation carry; built once, the end adds to a copy."""
        attributes = self._fields
        if attributes is None:
            attributes = self._fields = self.operation_base()
            values = self.values
            for key in names.ATTEMPT_START_KEYS:
                if key in values:
                    attributes[key] = values[key]
        return attributes

    def _run_fields(self) -> dict[str, Value]:
        values = self.values
        attributes = {
            names.WORKFLOW_NAME: values[names.WORKFLOW_NAME],
            names.RUN_ID: values[names.RUN_ID],
        }
        for key in names.RUN_START_KEYS:
            if key in values:
                attributes[key] = values[key]
        defaulted = [key for key in self.defaulted if key in names.IDENTITY_KEYS]
        if defaulted:
            attributes[names.DEFAULTED] = ",".join(defaulted)
        return attributes

    def _end(self, event: str, part: str, attributes: dict[str, Value]) -> Envelope:
        """An end: error keys, error type and duration are added to ``attributes``."""
        span, values = self.span, self.values
        error_type, replaced = error_type_of(span)
        if error_type:
            attributes[names.ERROR_TYPE] = error_type
        code = values.get(names.ERROR_CODE)
        if code is not None:
            attributes[names.ERROR_CODE] = redact_text(str(code))
        elif span.failed and error_type:
            attributes[names.ERROR_CODE] = error_type
            defaulted = attributes.get(names.DEFAULTED)
            # "flowmark.error.code" sorts before every identity key.
            attributes[names.DEFAULTED] = (
                f"{names.ERROR_CODE},{defaulted}" if defaulted else names.ERROR_CODE
            )
        retryable = values.get(names.ERROR_RETRYABLE)
        if retryable is not None:
            attributes[names.ERROR_RETRYABLE] = retryable
        start, end = span.start_time_unix_nano, span.end_time_unix_nano
        if start and start <= end <= start + MAX_INT64:
            attributes[names.DURATION_NS] = end - start
        envelope = self._envelope(event, part, end, attributes)
        return envelope._replace(characters_replaced=True) if replaced else envelope

    def _envelope(
        self, event: str, part: str, time_unix_nano: int, attributes: dict[str, Value]
    ) -> Envelope:
        span = self.span
        return Envelope(
            event,
            span.trace_id,
            span.span_id,
            part,
            time_unix_nano,
            attributes,
            span.dropped_attributes_count,
            self.replaced,
        )

    def _refusal(self, part: str) -> Refused | None:
        """The event refused, if a key that it carries breaks its rule."""
        if not self.broken:
            return None
        scopes = CARRIED_BY[part]
        fault = self._faults(
            key
            for key in self.broken
            if (rule := rule_of(key)) is not None and rule.scope in scopes
        )
        if not fault:
            return None
        span = self.span
        return Refused(names.INVALID, fault, event_id(span.trace_id, span.span_id, part))

    def _faults(self, keys: Iterable[str]) -> str:
        return "; ".join(f"{shown_key(key)} {self.broken[key]}" for key in sorted(keys))


def error_type_of(span: Span) -> tuple[str, bool]:
    """The error type of a span as it is carried, and whether characters were replaced.

    The attribute ``error.type``; of a failed span also the type of its last exception event.
    Empty if unknown.
    """
    value = span.attributes.get(names.ERROR_TYPE)
    if span.failed and not (isinstance(value, str) and value and not value.isspace()):
        value = None
        for event in span.events:
            if event.name == names.EXCEPTION_EVENT:
                value = event.attributes.get(names.EXCEPTION_TYPE)
    return clean_error_type(value)
