"""The table of keys: type, rule and scope of each (contract, sections 1 and 2).

A check returns the value as it is carried, or raises ``BrokenRule`` saying what was found and how
to mend it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from flowmark_otel import names
from flowmark_otel.model import (
    MAX_CODE,
    MAX_GROUP_ID,
    MAX_NAME,
    MAX_NUMBER,
    MAX_OUTCOME,
    MAX_RESULT_TEXT,
    Misshapen,
    Value,
)
from flowmark_otel.validate.secrets import redact_text


class BrokenRule(Exception):
    """What is wrong with a value, without its key."""


Check: TypeAlias = Callable[[object], Value]

MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)
_SHOWN: Final = 24
_SHOWN_KEY: Final = 48


class Scope(Enum):
    """Which events of a span carry a key."""

    IDENTITY = "identity"  # all events of the span
    OPERATION = "operation"  # both events of the operation
    OPERATION_END = "operation end"
    RUN = "run"  # both events of the run
    RUN_END = "run end"
    END = "end"  # every end
    TYPE = "type"  # none: it settles what the span is


_RUN_START: Final = frozenset((Scope.IDENTITY, Scope.RUN))
_OPERATION_START: Final = frozenset((Scope.IDENTITY, Scope.OPERATION))

CARRIED_BY: Final[dict[str, frozenset[Scope]]] = {
    names.PART_RUN_START: _RUN_START,
    names.PART_RUN_END: _RUN_START | {Scope.RUN_END, Scope.END},
    names.PART_OPERATION_START: _OPERATION_START,
    names.PART_OPERATION_END: _OPERATION_START | {Scope.OPERATION_END, Scope.END},
}
"""Which keys an event carries, by its part: a broken one makes exactly these events invalid."""

MAKES_OPERATION: Final = 1
MAKES_RUN: Final = 2
ENDS_RUN: Final = 4


class Rule(NamedTuple):
    """How one key is checked, who carries it, and what it makes of its span (bits above)."""

    check: Check
    scope: Scope
    makes: int = 0


def found_type(value: object) -> str:
    """What a value is, without the value."""
    kinds = {bool: "a bool", int: "an integer", float: "a double", str: "a string"}
    kind = kinds.get(type(value))
    return f"is {kind}" if kind else found(value)


def shown_key(key: str) -> str:
    """A key, short enough for a receipt to hold what is wrong with it too."""
    return key if len(key) <= _SHOWN_KEY else key[:_SHOWN_KEY] + "…"


def found(value: object) -> str:
    """What a value is, in words short enough for a receipt."""
    if isinstance(value, bool):
        return f"is the bool {str(value).lower()}"
    if isinstance(value, str):
        value = redact_text(str.__str__(value))  # before it is cut: half a secret looks like none
        shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
        return f"is the string {shown!r}"
    if isinstance(value, int):
        value = int.__int__(value)
        return f"is the integer {value}" if abs(value) < 1 << 64 else "is an integer beyond 64 bits"
    if isinstance(value, float):
        return f"is the double {float.__repr__(value)}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "is bytes"
    if isinstance(value, Misshapen):
        return f"is a {value.what} of a wrong shape"
    if isinstance(value, dict):
        return "is a map"
    return "is a list" if isinstance(value, (list, tuple)) else f"is a {type(value).__name__}"


def bad_characters(value: str) -> str | None:
    """Why a text cannot be kept as given (NUL, invalid UTF-8), or None."""
    if "\0" in value:
        return "has a NUL character; remove it"
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return "has a lone surrogate or invalid UTF-8; set valid text"
    return None


def text(limit: int, *, blank: bool = False) -> Check:
    """A string of at most ``limit`` code points; nonblank unless ``blank``."""

    def check(value: object) -> Value:
        if (  # the usual text, on one line of tests
            type(value) is str
            and value.isascii()
            and 0 < len(value) <= limit
            and not value.isspace()
            and "\0" not in value
        ):
            return value
        if not isinstance(value, str):
            msg = f"{found(value)}; set a string"
            raise BrokenRule(msg)
        bad = bad_characters(value)
        if bad is not None:
            raise BrokenRule(bad)
        if not blank and (not value or value.isspace()):
            msg = "is blank; set at least one character that is not white space"
            raise BrokenRule(msg)
        if len(value) > limit:
            msg = f"has {len(value)} characters; set at most {limit}"
            raise BrokenRule(msg)
        return value

    return check


def integer(low: int, high: int, words: str) -> Check:
    """An integer from ``low`` to ``high``; an integral double is read as that integer (A5)."""

    def check(value: object) -> Value:
        number: int
        if type(value) is int:
            if low <= value <= high:
                return value
            number = value
        elif (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or (isinstance(value, float) and not value.is_integer())
        ):
            msg = f"{found(value)}; set an integer {words}"
            raise BrokenRule(msg)
        else:
            number = int(value)
        if not low <= number <= high:
            msg = f"{found(value)}; set an integer {words}"
            raise BrokenRule(msg)
        return number

    return check


def boolean(value: object) -> Value:
    """A bool and nothing that merely looks like one."""
    if not isinstance(value, bool):
        msg = f"{found(value)}; set a bool"
        raise BrokenRule(msg)
    return value


def one_of(*allowed: str) -> Check:
    """One of a closed set of strings."""
    words = " or ".join(repr(word) for word in allowed)

    def check(value: object) -> Value:
        if not isinstance(value, str) or value not in allowed:
            msg = f"{found(value)}; set {words}"
            raise BrokenRule(msg)
        return value

    return check


def any_text(value: object) -> Value:
    """A string of any length: it is replaced by its served form before it goes anywhere."""
    if not isinstance(value, str):
        # The value stays out of the message: it may be the key itself.
        msg = f"{found_type(value)}; set a string: the key, or its served form"
        raise BrokenRule(msg)
    bad = bad_characters(value)
    if bad is not None:
        raise BrokenRule(bad)
    return value


_result_text = text(MAX_RESULT_TEXT, blank=True)


def result_value(value: object) -> Value:
    """A result: string of at most 1,024 code points, bool, 64-bit integer or finite double."""
    if isinstance(value, str):
        return _result_text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if MIN_INT64 <= value <= MAX_INT64:
            return value
        msg = f"{found(value)}; set a 64-bit integer"
        raise BrokenRule(msg)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        msg = f"{found(value)}; set a finite number"
        raise BrokenRule(msg)
    msg = f"{found(value)}; set a string, bool, integer or double"
    raise BrokenRule(msg)


_RESULT_KEY: Final = re.compile(r"[a-z](?:[a-z0-9_.]{0,62}[a-z0-9])?")


def result_key_fault(key: str) -> str | None:
    """Why the part after ``flowmark.run.result.`` is no result key, or None."""
    if _RESULT_KEY.fullmatch(key, len(names.RUN_RESULT_PREFIX)):
        return None
    return "is no result key; use 1 to 64 of a-z 0-9 _ . from a letter on"


_name = text(MAX_NAME)
_number = integer(1, MAX_NUMBER, "from 1 to 2^53-1")
_milliseconds = integer(0, MAX_INT64, "from 0")
nanoseconds: Final = integer(0, 2**64 - 1, "from 0")

RULES: Final[dict[str, Rule]] = {
    names.WORKFLOW_NAME: Rule(_name, Scope.IDENTITY),
    names.RUN_ID: Rule(_name, Scope.IDENTITY),
    names.OPERATION_NAME: Rule(_name, Scope.OPERATION, MAKES_OPERATION),
    names.OPERATION_ID: Rule(_name, Scope.OPERATION, MAKES_OPERATION),
    names.ATTEMPT_GROUP_ID: Rule(text(MAX_GROUP_ID), Scope.OPERATION, MAKES_OPERATION),
    names.ATTEMPT_NUMBER: Rule(_number, Scope.OPERATION, MAKES_OPERATION),
    names.ATTEMPT_LIMIT: Rule(_number, Scope.OPERATION, MAKES_OPERATION),
    names.ATTEMPT_KIND: Rule(
        one_of(names.KIND_REPORTED, names.KIND_OBSERVED), Scope.OPERATION, MAKES_OPERATION
    ),
    names.ATTEMPT_SERIES_NAME: Rule(_name, Scope.OPERATION, MAKES_OPERATION),
    names.ATTEMPT_SYSTEM_NAME: Rule(_name, Scope.OPERATION, MAKES_OPERATION),
    names.ATTEMPT_TIMEOUT_MS: Rule(_milliseconds, Scope.OPERATION, MAKES_OPERATION),
    names.ATTEMPT_DEADLINE_MS: Rule(_milliseconds, Scope.OPERATION, MAKES_OPERATION),
    names.ATTEMPT_IDEMPOTENCY_KEY: Rule(any_text, Scope.OPERATION, MAKES_OPERATION),
    names.ATTEMPT_TIME_READ: Rule(boolean, Scope.OPERATION_END, MAKES_OPERATION),
    names.RETRY_OF_WORKFLOW_NAME: Rule(_name, Scope.RUN, MAKES_RUN),
    names.RETRY_OF_RUN_ID: Rule(_name, Scope.RUN, MAKES_RUN),
    names.PARENT_RUN_ID: Rule(_name, Scope.RUN),
    names.CORRELATION_ID: Rule(_name, Scope.RUN),
    names.RUN_OUTCOME: Rule(text(MAX_OUTCOME), Scope.RUN_END, MAKES_RUN | ENDS_RUN),
    names.ERROR_CODE: Rule(text(MAX_CODE), Scope.END),
    names.ERROR_RETRYABLE: Rule(boolean, Scope.END),
    names.RECORD_TYPE: Rule(one_of(names.RECORD_RUN, names.RECORD_OPERATION), Scope.TYPE),
}
"""Every key of section 1 but ``flowmark.run.result.<key>``, which ``rule_of`` adds."""

_RESULT_RULE: Final = Rule(result_value, Scope.RUN_END, MAKES_RUN | ENDS_RUN)

OBSERVED_RULES: Final[dict[str, Check]] = {
    names.OBSERVED_NUMBER: _number,
    names.OBSERVED_OUTCOME: one_of(names.STATUS_COMPLETED, names.STATUS_FAILED),
    names.OBSERVED_DURATION_NS: integer(0, MAX_INT64, "from 0"),
    names.OBSERVED_SERIES: _name,
    names.OBSERVED_SYSTEM: _name,
}
"""What a ``flowmark.attempt.observed`` event carries of its own (B8)."""

DURATION_CHECK: Final = integer(0, MAX_INT64, "from 0")


def rule_of(key: str) -> Rule | None:
    """The rule of a ``flowmark.`` key, or None if the table has no such key."""
    rule = RULES.get(key)
    if rule is None and key.startswith(names.RUN_RESULT_PREFIX):
        return _RESULT_RULE
    return rule


def check_of(key: str, rule: Rule) -> Check:
    """The check of a key's value; of a result key that is none, one that always fails."""
    fault = result_key_fault(key) if rule is _RESULT_RULE else None
    if fault is None:
        return rule.check

    def check(_: object) -> Value:
        raise BrokenRule(fault)

    return check


def check_value(key: str, rule: Rule, value: object) -> Value:
    """The value as it is carried; raises ``BrokenRule``."""
    return check_of(key, rule)(value)
