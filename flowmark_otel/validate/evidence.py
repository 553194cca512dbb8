"""What one span says about retries: which records it makes, their values, and its broken rules.

Pure; the one reading of section 1 of the contract, used by every half of the package.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.model import MAX_NAME, MAX_RESULTS, Span, Value
from flowmark_otel.validate.rules import (
    ENDS_RUN,
    MAKES_OPERATION,
    MAKES_RUN,
    BrokenRule,
    Check,
    bad_characters,
    check_of,
    rule_of,
)

_TRACE_ID: Final = 16
_SPAN_ID: Final = 8
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
    attributes = span.attributes
    keys = tuple(attributes)
    plan = _PLANS.get(keys) or _plan(keys)
    makes = plan.makes
    if not (makes or plan.typed):
        return None
    values: dict[str, Value] = {}
    broken: dict[str, str] = {}
    for key, check in plan.checks:
        value = attributes[key]
        if value is None:  # an empty value counts as absent
            given = {key: value for key, value in attributes.items() if value is not None}
            return evidence_of(span._replace(attributes=given))
        try:
            values[key] = check(value)
        except BrokenRule as error:
            broken[key] = str(error)
    if plan.typed:
        if names.RECORD_TYPE in broken:
            return _unusable(f"{names.RECORD_TYPE} {broken[names.RECORD_TYPE]}")
        typed = values[names.RECORD_TYPE]
        makes = MAKES_OPERATION if typed == names.RECORD_OPERATION else MAKES_RUN | ENDS_RUN
    fault = ids_fault(span.trace_id, span.span_id)
    if fault:
        return _unusable(fault)
    for key, fault in plan.faults:
        broken.setdefault(key, fault)
    return Evidence(
        makes & MAKES_RUN != 0,
        makes & MAKES_OPERATION != 0,
        makes & ENDS_RUN != 0,
        values,
        broken,
    )


class _Plan(NamedTuple):
    """How attributes with these keys are read, whatever their values.

    ``makes`` is what the keys make of the span unless ``typed`` says that a record type is among
    them; ``faults`` are those of the keys: halves of pairs, too many results.
    """

    checks: tuple[tuple[str, Check], ...]
    makes: int
    typed: bool
    faults: tuple[tuple[str, str], ...]


_PLANS: Final[dict[tuple[str, ...], _Plan]] = {}
"""Spans of one place in a program have the same keys. Shared by threads: a lost plan is made
again."""

_MAX_PLANS: Final = 1024
_MAX_PLANNED: Final = 2048  # characters of all keys of a plan that is kept


def _plan(keys: tuple[str, ...]) -> _Plan:
    rules = {
        key: rule
        for key in keys
        if key.startswith(names.PREFIX) and (rule := rule_of(key)) is not None
    }
    makes = 0
    for rule in rules.values():
        makes |= rule.makes
    faults = {
        **half_pair(ATTEMPT_PAIR, rules),
        **half_pair(RETRY_OF_PAIR, rules),
        **too_many_results(rules),
    }
    plan = _Plan(
        tuple((key, check_of(key, rule)) for key, rule in rules.items()),
        makes,
        names.RECORD_TYPE in rules,
        tuple(faults.items()),
    )
    if sum(map(len, keys)) <= _MAX_PLANNED:
        if len(_PLANS) >= _MAX_PLANS:
            _PLANS.clear()
        _PLANS[keys] = plan
    return plan


def _unusable(fault: str) -> Evidence:
    return Evidence(
        is_run=False, is_operation=False, ends_run=False, values={}, broken={}, unusable=fault
    )


def ids_fault(trace_id: bytes, span_id: bytes) -> str:
    """Why ids cannot name an event, or an empty text."""
    if len(trace_id) == _TRACE_ID and len(span_id) == _SPAN_ID and any(trace_id) and any(span_id):
        return ""
    for what, value, size in (("trace id", trace_id, _TRACE_ID), ("span id", span_id, _SPAN_ID)):
        if len(value) != size:
            return f"{what} has {len(value)} bytes; set {size} ({2 * size} hex digits in JSON)"
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


def too_many_results(carried: Collection[str]) -> dict[str, str]:
    """The fault of a run that reports more results than are kept."""
    if len(carried) <= MAX_RESULTS:
        return {}
    count = sum(key.startswith(names.RUN_RESULT_PREFIX) for key in carried)
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


def half_pair(pair: tuple[str, str], carried: Collection[str]) -> dict[str, str]:
    """The fault of a pair of which one key alone is carried, so that a typo is not silent."""
    one, other = pair
    if (one in carried) == (other in carried):
        return {}
    key, missing = (one, other) if one in carried else (other, one)
    return {key: f"needs {missing}; set both"}
