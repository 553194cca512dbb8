"""What an early start settles, and how the end keeps to it (contract, section 2). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.model import Envelope, Refused
from flowmark_otel.validate import ATTEMPT_PAIR, RETRY_OF_PAIR, BrokenRule, check_value, rule_of

OPERATION_KEYS: Final = (names.OPERATION_NAME, names.OPERATION_ID, *names.ATTEMPT_START_KEYS)
START_KEYS: Final = (*names.IDENTITY_KEYS, *OPERATION_KEYS, *names.RUN_START_KEYS)
_OPERATION: Final = names.PART_OPERATION_START
_RUN: Final = names.PART_RUN_START
_STARTS: Final = frozenset((_OPERATION, _RUN))
_FROZEN: Final = {
    frozenset((_OPERATION,)): frozenset((*names.IDENTITY_KEYS, *OPERATION_KEYS)),
    frozenset((_RUN,)): frozenset((*names.IDENTITY_KEYS, *names.RUN_START_KEYS)),
    frozenset((_OPERATION, _RUN)): frozenset(START_KEYS),
}
NOTHING: Final[frozenset[str]] = frozenset()
OPERATION_SETTLED: Final = (_FROZEN[frozenset((_OPERATION,))], frozenset((_OPERATION,)))
"""What the start of an operation alone freezes, and that it was sent."""


class Settled(NamedTuple):
    """What starts settle once they are sent.

    ``name`` is the operation name that was taken from the span's, None if it was given.
    ``frozen``: keys that cannot change any more; ``sent``: the starts, as parts of event ids.
    """

    name: str | None
    frozen: frozenset[str]
    sent: frozenset[str]


def is_early(attributes: Mapping[str, object]) -> bool:
    """Whether the start of such a span is sent at once: what it is cannot change any more."""
    get = attributes.get
    return (
        (get(ATTEMPT_PAIR[0]) is not None and get(ATTEMPT_PAIR[1]) is not None)
        or (get(RETRY_OF_PAIR[0]) is not None and get(RETRY_OF_PAIR[1]) is not None)
        or get(names.RECORD_TYPE) is not None
    )


def settle(starts: Iterable[Envelope | Refused]) -> Settled:
    """What these starts settle; nothing where the span counts as one event, at its end."""
    name = None
    parts = []
    for event in starts:
        part = _start_of(event)
        if part is None:
            return Settled(None, NOTHING, NOTHING)
        parts.append(part)
        if part == _OPERATION and isinstance(event, Envelope):
            defaulted = event.attributes.get(names.DEFAULTED)
            if isinstance(defaulted, str) and names.OPERATION_NAME in defaulted:
                name = str(event.attributes[names.OPERATION_NAME])
    sent = frozenset(parts)
    return Settled(name, _FROZEN[sent], sent)


def named(starts: Iterable[Envelope | Refused], name: str) -> list[Envelope | Refused] | None:
    """Starts as they fold once the span carries ``name``, the operation name they defaulted to.

    None: only folding tells.
    """
    if name.isspace():
        return None
    found: list[Envelope | Refused] = []
    for event in starts:
        if isinstance(event, Refused):
            found.append(event)
            continue
        if event.characters_replaced:  # in which of the defaults is not known
            return None
        found.append(_given(event) if event.part == _OPERATION else event)
    return found


def _given(start: Envelope) -> Envelope:
    """A start of an operation whose name is no default any more."""
    attributes = dict(start.attributes)
    defaulted = str(attributes[names.DEFAULTED]).split(",")
    defaulted.remove(names.OPERATION_NAME)
    if defaulted:
        attributes[names.DEFAULTED] = ",".join(defaulted)  # in its place, as folding has it
    else:
        del attributes[names.DEFAULTED]
    event, trace_id, span_id, part, time_unix_nano, _, dropped, replaced = start
    return Envelope(event, trace_id, span_id, part, time_unix_nano, attributes, dropped, replaced)


def _start_of(event: Envelope | Refused) -> str | None:
    """Which start an event is, as a part of an event id; None if it is none."""
    if isinstance(event, Envelope):
        return event.part if event.part in _STARTS else None
    kind, _, rest = event.event_id.partition("-")
    part = f"{kind}-{rest.rpartition('-')[2]}"
    return part if part in _STARTS else None


def restore(
    attributes: dict[str, object], kept: Mapping[str, object], frozen: frozenset[str]
) -> list[str]:
    """Give the attributes of a finished span what it was started with; the keys that changed.

    A key that is gone was taken by an attribute limit, as nothing removes one: it comes back, and
    is no change.
    """
    changed = [
        key
        for key, now in attributes.items()
        if key in frozen and (then := kept.get(key)) is not now and not _same(key, then, now)
    ]
    for key in changed:
        attributes[key] = kept.get(key)  # None is absent
    if not kept.keys() <= attributes.keys():
        for key, value in kept.items():
            attributes.setdefault(key, value)
    return sorted(changed)


def _same(key: str, one: object, other: object) -> bool:
    """Whether two values of a key are carried alike."""
    if type(one) is type(other) and one == other:
        return True
    rule = rule_of(key)
    if one is None or other is None or rule is None:
        return False
    try:
        return check_value(key, rule, one) == check_value(key, rule, other)
    except BrokenRule:
        return False
