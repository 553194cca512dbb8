"""What one span says about retries: which records it makes, their values, and its broken rules.

Pure; the one reading of section 1 of the contract, used by every half of the package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.model import MAX_NAME, MAX_RESULTS, Span, Value
from flowmark_otel.validate.rules import (
    ENDS_RUN,
    MAKES_OPERATION,
    MAKES_RUN,
    BrokenRule,
    bad_characters,
    check_value,
    rule_of,
)

_BAD: Final = re.compile("[\0\ud800-\udfff]")


ATTEMPT_PAIR: Final = (names.ATTEMPT_GROUP_ID, names.ATTEMPT_NUMBER)
RETRY_OF_PAIR: Final = (names.RETRY_OF_WORKFLOW_NAME, names.RETRY_OF_RUN_ID)


class Evidence(NamedTuple):
    """One annotated span, read.

    ``values`` holds what passed its rule; ``broken`` maps a key to its fault. ``unusable`` is set
    where the span counts as one event named by its position; the rest then means nothing.
    """

    is_run: bool
    is_operation: bool
    ends_run: bool
    values: dict[str, Value]
    broken: dict[str, str]
    unusable: str = ""


def evidence_of(span: Span) -> Evidence | None:
    """Read a span's own attributes; None if it is neither run nor operation.

    Identity that the span does not carry is not filled in here: folding does.
    """
    values, broken, makes = _read(span.attributes)
    typed = values.get(names.RECORD_TYPE)
    if typed is not None:
        makes = MAKES_OPERATION if typed == names.RECORD_OPERATION else MAKES_RUN | ENDS_RUN
    fault = broken.get(names.RECORD_TYPE)
    if fault is not None:
        return _unusable(f"{names.RECORD_TYPE} {fault}")
    if not makes:
        return None
    fault = ids_fault(span.trace_id, span.span_id)
    if fault:
        return _unusable(fault)
    if makes & MAKES_OPERATION:
        broken.update(half_pair(ATTEMPT_PAIR, values, broken))
    if makes & MAKES_RUN:
        broken.update(half_pair(RETRY_OF_PAIR, values, broken))
        broken.update(too_many_results(span.attributes))
    return Evidence(
        bool(makes & MAKES_RUN),
        bool(makes & MAKES_OPERATION),
        bool(makes & ENDS_RUN),
        values,
        broken,
    )


def _read(attributes: Mapping[str, object]) -> tuple[dict[str, Value], dict[str, str], int]:
    """What passed its rule, what did not, and what the keys make of the span."""
    values: dict[str, Value] = {}
    broken: dict[str, str] = {}
    makes = 0
    for key, value in attributes.items():
        if value is None or not key.startswith("flowmark."):
            continue
        rule = rule_of(key)
        if rule is None:
            continue
        makes |= rule.makes
        try:
            values[key] = check_value(key, rule, value)
        except BrokenRule as error:
            broken[key] = str(error)
    return values, broken, makes


def _unusable(fault: str) -> Evidence:
    return Evidence(
        is_run=False, is_operation=False, ends_run=False, values={}, broken={}, unusable=fault
    )


def ids_fault(trace_id: bytes, span_id: bytes) -> str:
    """Why ids cannot name an event, or an empty text."""
    for what, value, size in (("trace id", trace_id, 16), ("span id", span_id, 8)):
        if len(value) != size:
            return f"{what} has {len(value)} bytes; set {size}"
        if not any(value):
            return f"{what} is all zero; record the span with a valid context"
    return ""


def self_reference(values: Mapping[str, Value]) -> bool:
    """Whether a run names itself as its predecessor (A13)."""
    target = values.get(names.RETRY_OF_RUN_ID)
    return (
        target is not None
        and target == values.get(names.RUN_ID)
        and values.get(names.RETRY_OF_WORKFLOW_NAME) == values.get(names.WORKFLOW_NAME)
    )


SELF_REFERENCE: Final = "names this run itself; name the run that is retried"


def too_many_results(attributes: Mapping[str, object]) -> dict[str, str]:
    """The fault of a run that reports more results than are kept."""
    if len(attributes) <= MAX_RESULTS:
        return {}
    count = sum(key.startswith(names.RUN_RESULT_PREFIX) for key in attributes)
    if count <= MAX_RESULTS:
        return {}
    return {names.RUN_RESULT_PREFIX + "*": f"are {count}; set at most {MAX_RESULTS}"}


def unknown_keys(attributes: Mapping[str, object]) -> list[str]:
    """The ``flowmark.`` keys that are in no table; they are not carried (E5)."""
    return sorted(
        key for key in attributes if key.startswith(names.PREFIX) and rule_of(key) is None
    )


def clean_default(value: str, limit: int = MAX_NAME) -> tuple[str, bool]:
    """A default as it is carried, and whether characters of it were replaced.

    A default never causes a refusal: a blank one becomes ``unknown``, a long one is cut.
    """
    replaced = bad_characters(value) is not None
    if replaced:
        value = _BAD.sub("\ufffd", value)
    if not value or value.isspace():
        return names.UNKNOWN_NAME, replaced
    return value[:limit], replaced


def half_pair(
    pair: tuple[str, str], values: Mapping[str, Value], broken: Mapping[str, str]
) -> dict[str, str]:
    """The fault of a pair of which one key alone is carried, so that a typo is not silent."""
    one, other = pair
    if (one in values) == (other in values):
        return {}
    key, missing = (one, other) if one in values else (other, one)
    return {} if missing in broken else {key: f"needs {missing}; set both"}
