"""What a span or record would be, in words for people; a key that is refused reads ``?``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowmark_otel import names
from flowmark_otel.model import LogRecord, Span
from flowmark_otel.validate import BrokenRule, check_value, clean_default, evidence_of, rule_of

UNREADABLE: Final = "cannot be told: it could not be read"
_REFUSED: Final = "?"


def would_be_of_span(span: Span) -> str:
    """The records a span would make if its broken rules were mended."""
    evidence = evidence_of(span)
    if evidence is None:
        return "nothing: neither run nor operation"
    passed = _passed(span.attributes)
    passed.setdefault(names.WORKFLOW_NAME, _default(span.service_name, names.UNKNOWN_SERVICE))
    passed.setdefault(names.RUN_ID, span.trace_id.hex() or _REFUSED)
    passed.setdefault(names.OPERATION_NAME, _default(span.name, names.UNKNOWN_NAME))
    if not (evidence.is_run or evidence.is_operation):  # its record type is the broken rule
        return f"a run or an operation in {_run(passed)}"
    parts = []
    if evidence.is_operation:
        parts.append(_operation(passed))
    if evidence.is_run:
        parts.append(_retry(passed))
    return " and ".join(parts)


def would_be_of_record(record: LogRecord) -> str:
    """The event a log record would be if its broken rules were mended."""
    event = record.event_name or record.attributes.get(names.EVENT_NAME)
    passed = _passed(record.attributes)
    of_run = isinstance(event, str) and event.startswith("flowmark.run.")
    return f"{event} of {_retry(passed) if of_run else _operation(passed)}"


def _passed(attributes: Mapping[str, object]) -> dict[str, str]:
    """Each of our keys that is set: its value if it passes its rule, else ``?``."""
    passed: dict[str, str] = {}
    for key, value in attributes.items():
        rule = rule_of(key)
        if rule is None or value is None:
            continue
        try:
            passed[key] = str(check_value(key, rule, value))
        except BrokenRule:
            passed[key] = _REFUSED
    return passed


def _operation(passed: Mapping[str, str]) -> str:
    name = f"operation {_shown(passed, names.OPERATION_NAME)} in {_run(passed)}"
    if names.ATTEMPT_GROUP_ID not in passed and names.ATTEMPT_NUMBER not in passed:
        return name
    number = passed.get(names.ATTEMPT_NUMBER, _REFUSED)
    return f"attempt {number} of group {_shown(passed, names.ATTEMPT_GROUP_ID)} of {name}"


def _run(passed: Mapping[str, str]) -> str:
    return f"run {_shown(passed, names.RUN_ID)} of workflow {_shown(passed, names.WORKFLOW_NAME)}"


def _retry(passed: Mapping[str, str]) -> str:
    run = _run(passed)
    if names.RETRY_OF_RUN_ID not in passed and names.RETRY_OF_WORKFLOW_NAME not in passed:
        return run
    return (
        f"{run}, retry of run {_shown(passed, names.RETRY_OF_RUN_ID)}"
        f" of workflow {_shown(passed, names.RETRY_OF_WORKFLOW_NAME)}"
    )


def _shown(passed: Mapping[str, str], key: str) -> str:
    value = passed.get(key, _REFUSED)
    return value if value == _REFUSED else repr(value)


def _default(value: object, otherwise: str) -> str:
    return clean_default(value)[0] if isinstance(value, str) else otherwise
