"""Pure: what a span says of a try by the conventions of others, and why it says no more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.model import Span
from flowmark_otel.signals.convention import Convention, Keys
from flowmark_otel.signals.values import is_true, number_of, text_of
from flowmark_otel.validate import RULES, BrokenRule, shown_key
from flowmark_otel.validate.secrets import redact_text


class Attempt(NamedTuple):
    """An attempt that a convention names: all of it is on the span, nothing is guessed.

    ``operation`` is None where the span's name is the operation's; ``limit`` where none is given.
    ``failed`` is None where nothing says how the try ended: then it has no end.
    """

    signal: str
    group_id: str
    number: int
    limit: int | None
    operation: str | None
    failed: bool | None

    def attributes(self) -> dict[str, object]:
        """What an annotated span would carry."""
        found: dict[str, object] = {
            names.ATTEMPT_GROUP_ID: self.group_id,
            names.ATTEMPT_NUMBER: self.number,
            names.ATTEMPT_KIND: names.KIND_OBSERVED,
        }
        if self.limit is not None:
            found[names.ATTEMPT_LIMIT] = self.limit
        if self.operation is not None:
            found[names.OPERATION_NAME] = self.operation
        return found


class NoAttempt(NamedTuple):
    """Why a span that carries a mark of a convention is no attempt by it: a sentence's rest."""

    signal: str
    says: str


class Signals(NamedTuple):
    """Conventions that are read, and what has to be looked at for them.

    ``marks``: a span that any of them is about carries one of these keys; ``reads`` all keys.
    The same as bytes, for who looks for them in what is not decoded yet: every request is searched
    for each of ``raw_marks``, so what keys begin with stands for them where it tells enough.
    """

    conventions: tuple[Convention, ...]
    marks: frozenset[str]
    reads: frozenset[str]
    raw_marks: tuple[bytes, ...]
    raw_reads: frozenset[bytes]

    @classmethod
    def of(cls, conventions: Iterable[Convention]) -> Signals:
        """These conventions, in order: the first that names an attempt is the one that counts."""
        rows = tuple(conventions)
        marks = frozenset(key for row in rows for key in row.marks)
        reads = frozenset(key for row in rows for key in row.reads)
        raw_marks = {mark.encode() for row in rows for mark in _sought(row.marks)}
        return cls(rows, marks, reads, tuple(sorted(raw_marks)), frozenset(map(str.encode, reads)))


_TELLING: Final = 16


def _sought(marks: Keys) -> Keys:
    """What to look for in the place of these keys: what all begin with, if that is long enough."""
    first, last = min(marks), max(marks)
    pairs = enumerate(zip(first, last, strict=False))
    shared = next((place for place, (a, b) in pairs if a != b), min(len(first), len(last)))
    return (first[:shared],) if shared >= _TELLING else marks


NO_SIGNALS: Final = Signals.of(())


def attempt_of(span: Span, signals: Signals) -> Attempt | None:
    """The attempt that an enabled convention names; of spans that carry no record of their own."""
    if signals.marks.isdisjoint(span.attributes):
        return None
    for row in signals.conventions:
        found = read(span, row)
        if isinstance(found, Attempt):
            return found
    return None


def read(span: Span, row: Convention) -> Attempt | NoAttempt | None:
    """What one convention makes of a span; None if the span is not of it."""
    attributes = span.attributes
    if _first(attributes, row.marks) is None:
        return None
    try:
        _check_place(span, row)
        _check_detour(attributes, row)
        counted = _counted(attributes, row)
        if row.never:
            return NoAttempt(row.name, f"{counted.says}; {row.never}")
        return Attempt(
            row.name,
            _group(attributes, row),
            counted.number,
            counted.limit,
            _operation(attributes, row),
            True if span.failed or row.outcome is None else row.outcome.of(attributes),
        )
    except _NoneError as error:
        return NoAttempt(row.name, str(error))


_REDIRECT: Final = 3
_CHALLENGE: Final = 401


class _NoneError(Exception):
    """Why a span is no attempt."""


class _Counted(NamedTuple):
    number: int
    limit: int | None
    says: str


def _first(attributes: Mapping[str, object], keys: Keys) -> str | None:
    """The first of the spellings that is there; an empty value counts as absent."""
    return next((key for key in keys if attributes.get(key) is not None), None)


def _check_place(span: Span, row: Convention) -> None:
    if row.where is None:
        return
    key, wanted = row.where
    if (span.attributes.get(key) if key else span.name) not in wanted:
        raise _NoneError(row.others)


def _check_detour(attributes: Mapping[str, object], row: Convention) -> None:
    key = _first(attributes, row.statuses)
    if key is None:
        return
    try:
        status = number_of(attributes[key])
    except BrokenRule:
        return
    if status // 100 == _REDIRECT or status == _CHALLENGE:
        msg = f"{key} {status} is a redirect or challenge: no failure, and no try of its own"
        raise _NoneError(msg)


def _counted(attributes: Mapping[str, object], row: Convention) -> _Counted:
    for unless in row.unnumbered:
        if is_true(attributes.get(unless)):
            msg = f"{unless} is true: such a try has no number of its own"
            raise _NoneError(msg)
    key = _first(attributes, row.number)
    if key is None:
        return _uncounted(row)
    value = attributes[key]
    limit = None
    try:
        if row.pattern:
            value, limit = _taken(row.pattern, text_of(value))
        count = number_of(value)
        if row.total:
            return _Counted(0, None, f"{key} is {count}: the span contains {count + 1} sends")
        number = _numbered(count, row)
    except BrokenRule as error:
        msg = f"{key} {error}"
        raise _NoneError(msg) from error
    return _Counted(number, limit, f"{key} {count}, counted from {row.base}, makes it try {number}")


def _uncounted(row: Convention) -> _Counted:
    """What a try without a count is."""
    if not row.number:
        raise _NoneError(row.never)
    if row.absent is None:
        msg = f"{row.number[0]} is absent, and that does not mean the first try"
        raise _NoneError(msg)
    return _Counted(row.absent, None, f"no {row.number[0]} makes it try {row.absent}")


def _numbered(count: int, row: Convention) -> int:
    """The number of a try, from 1, by its count; raises BrokenRule where that is none."""
    if row.zero_unknown and not count:
        msg = "is 0, which stands for not known"
        raise BrokenRule(msg)
    number = count + 1 - row.base
    if number < 1:
        msg = f"is {count}; it is counted from {row.base}"
        raise BrokenRule(msg)
    RULES[names.ATTEMPT_NUMBER].check(number)
    return number


def _taken(pattern: str, text: str) -> tuple[str, int | None]:
    """The count, and the limit if there is one, out of a text."""
    found = re.fullmatch(pattern, text)
    if found is None:
        msg = f"is the string {redact_text(text)[:24]!r}, which says no number"
        raise BrokenRule(msg)
    limit = found.groupdict().get("limit")
    return found["number"], None if limit is None else int(limit)


def _group(attributes: Mapping[str, object], row: Convention) -> str:
    parts = []
    for keys in row.group:
        key = _first(attributes, keys)
        if key is None:
            msg = f"{keys[0]} is absent, so nothing says which tries belong together"
            raise _NoneError(msg)
        try:
            parts.append(text_of(attributes[key]))
        except BrokenRule as error:
            msg = f"{key} {error}"
            raise _NoneError(msg) from error
    try:
        return str(RULES[names.ATTEMPT_GROUP_ID].check("/".join(parts)))
    except BrokenRule as error:
        msg = f"the group id out of {', '.join(keys[0] for keys in row.group)} {error}"
        raise _NoneError(msg) from error


def _operation(attributes: Mapping[str, object], row: Convention) -> str | None:
    """The operation's name if the convention has it and it may be one."""
    key = _first(attributes, row.operation)
    if key is None:
        return None
    try:
        return str(RULES[names.OPERATION_NAME].check(attributes[key]))
    except BrokenRule as error:
        msg = f"{shown_key(key)} {error}"
        raise _NoneError(msg) from error
