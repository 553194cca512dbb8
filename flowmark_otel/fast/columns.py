"""Values of one key that passed its rule, as they were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from flowmark_otel import names
from flowmark_otel.fold.redact import clean_error_type, is_redacted, redacted
from flowmark_otel.model import Value
from flowmark_otel.validate import BrokenRule, clean_default, rule_of
from flowmark_otel.wire.records import encode_pair

_MAX_VALUES: Final = 1024
_MAX_REMEMBERED: Final = 256  # bytes of a pair
_ONCE: Final = frozenset((names.OPERATION_ID, names.ATTEMPT_IDEMPOTENCY_KEY))
"""Keys whose values seldom occur again: they would only push others out."""

_Given = TypeVar("_Given")


class Pairs(dict[_Given, bytes]):
    """The written pairs of one key by what is given of it; ``carried`` checks a value.

    Bounded: a full one begins anew. Shared by threads: a lost entry is written again.
    """

    __slots__ = ("_key", "_once", "carried")

    def __init__(self, key: str, carried: Callable[[object], Value]) -> None:
        super().__init__()
        self._key = key
        self.carried = carried
        self._once = key in _ONCE

    def _keep(self, given: _Given, written: bytes, size: int) -> bytes:
        """Remember a pair, unless it seldom comes again or is of too many bytes; returns it."""
        if not self._once and size <= _MAX_REMEMBERED:
            if len(self) >= _MAX_VALUES:
                self.clear()
            self[given] = written
        return written


class Column(Pairs[object]):
    """The written pairs of one key by value; a value that is not there is checked and written.

    Looking one up raises BrokenRule, or TypeError where it cannot be a key of a dict. Values of
    different types have to be told apart before: 1 == True.
    """

    __slots__ = ("_heads",)

    def __init__(self, key: str, carried: Callable[[object], Value]) -> None:
        super().__init__(key, carried)
        self._heads: dict[int, bytes] = {}  # what stands before a text of so many bytes

    def __missing__(self, value: object) -> bytes:
        """The pair of a value that is not known."""
        carried = self.carried(value)
        written = self._text(carried) if type(carried) is str else encode_pair(self._key, carried)
        return self._keep(value, written, len(written))

    def _text(self, text: str) -> bytes:
        raw = text.encode()
        size = len(raw)
        head = self._heads.get(size)
        if head is None:
            head = self._heads[size] = encode_pair(self._key, "-" * size)[: -size or None]
        return head + raw


_given: Final[dict[str, Column]] = {}
"""Of the keys of the table: there are few, and results of runs never come here."""


def column_of(key: str) -> Column:
    """The column of a key that the span itself carries; KeyError if no rule has it."""
    found = _given.get(key)
    if found is None:
        carried = _error_type if key == names.ERROR_TYPE else _carried(key)
        found = _given[key] = Column(key, carried)
    return found


def _carried(key: str) -> Callable[[object], Value]:
    rule = rule_of(key)
    if rule is None:
        raise KeyError(key)
    if not is_redacted(key):
        return rule.check
    return lambda value: redacted(key, rule.check(value))


def _error_type(value: object) -> Value:
    found, replaced = clean_error_type(value)
    if replaced or not found:
        raise BrokenRule
    return found


def _default(value: object) -> Value:
    found, replaced = clean_default(str(value))
    if replaced:
        raise BrokenRule
    return found


NAME: Final = Column(names.OPERATION_NAME, _default)
"""Operation names by the name of the span."""

SERVICE: Final = Column(names.WORKFLOW_NAME, _default)
"""Workflow names by the name of the service."""


def is_operation_name(name: object) -> bool:
    """Whether a span's name, given as an operation's name, would be kept as it is."""
    try:
        return type(name) is str and bool(column_of(names.OPERATION_NAME)[name])
    except BrokenRule:
        return False
