"""Two records field by field: two that claim one place, or two attempts of a group (A6, A9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from flowmark_otel import names
from flowmark_otel.backend.views import rfc3339
from flowmark_otel.dashboard import timeline, words
from flowmark_otel.dashboard.marks import Kind, Shape
from flowmark_otel.dashboard.pages.facts import value
from flowmark_otel.dashboard.pages.frame import State
from flowmark_otel.dashboard.pages.sides import Side
from flowmark_otel.model import Value

_LABELS: Final = {
    names.ERROR_CODE: "Error code",
    names.ERROR_TYPE: "Error type",
    names.ERROR_RETRYABLE: "Retryable",
    names.OPERATION_NAME: "Operation",
    names.ATTEMPT_GROUP_ID: "Group",
    names.ATTEMPT_NUMBER: "Number",
    names.ATTEMPT_LIMIT: "Limit",
    names.ATTEMPT_KIND: "Kind",
    names.ATTEMPT_SERIES_NAME: "Series",
    names.ATTEMPT_SYSTEM_NAME: "System",
    names.ATTEMPT_TIMEOUT_MS: "Timeout, ms",
    names.ATTEMPT_DEADLINE_MS: "Deadline, ms",
    names.ATTEMPT_IDEMPOTENCY_KEY: "Idempotency key",
    names.ATTEMPT_TIME_READ: "Time was read",
}
# Said elsewhere in the comparison, or the same for all events of a run.
_LEFT_OUT: Final = frozenset(
    {
        names.EVENT_ID,
        names.EVENT_NAME,
        names.DEFAULTED,
        names.DURATION_NS,
        names.OPERATION_ID,
        names.WORKFLOW_NAME,
        names.RUN_ID,
    }
)
_OF_GROUP: Final = frozenset({names.OPERATION_NAME, names.ATTEMPT_GROUP_ID, names.ATTEMPT_NUMBER})
_CODE: Final = frozenset({names.ERROR_CODE, names.ERROR_TYPE, names.ATTEMPT_IDEMPOTENCY_KEY})
_DIFFERS: Final = "differs"
_Two: TypeAlias = tuple[Side, Side]


class Said(NamedTuple):
    """What one record says of a field; ``state`` draws its mark, ``code`` writes an identifier.

    ``time``: the text is this time, RFC 3339.
    """

    text: str
    state: State | None = None
    code: bool = False
    muted: bool = False
    time: str | None = None


_UNKNOWN: Final = Said(words.UNKNOWN, muted=True)


class Compared(NamedTuple):
    """One field of two records; ``change`` is None where they say the same."""

    name: str
    said: tuple[Said, Said]
    change: str | None
    key: bool = False


class Comparison(NamedTuple):
    """Two records side by side; ``bars`` are their parts of one timeline, empty without times."""

    left: str
    right: str
    extent: str
    bars: tuple[tuple[Shape, ...], ...]
    rows: tuple[Compared, ...]

    @property
    def differing(self) -> int:
        """How many fields differ."""
        return sum(row.change is not None for row in self.rows)


def of_claims(records: _Two, titles: tuple[str, str], *, highest: bool) -> Comparison:
    """Two records that claim one place. ``highest``: it is the highest known of its group."""
    left, right = records
    rows = (
        _texts("Operation id", left.operation_id, right.operation_id, code=True),
        _states(records, (highest, highest)),
        _times("Started", left.started_at, right.started_at),
        _times("Ended", left.ended_at, right.ended_at),
        _durations(records),
        *_attributes(records, frozenset()),
        *_senders(records),
        _texts("Trace id", left.trace_id, right.trace_id, code=True),
        _texts("Span id", left.span_id, right.span_id, code=True),
        _times("First arrival", left.arrived, right.arrived),
        _texts("Decision", left.decision, right.decision),
    )
    return _comparison(records, titles, (highest, highest), rows)


def of_attempts(
    records: _Two,
    titles: tuple[str, str],
    highest: tuple[bool, bool],
    idles: tuple[int | None, int | None],
) -> Comparison:
    """Two attempts of one group; what is another for every attempt (ids, times) is left out.

    ``idles``: the idle time before each of them, in nanoseconds.
    """
    rows = (
        _states(records, highest),
        _durations(records),
        *_idles(*idles),
        *_attributes(records, _OF_GROUP),
        *_senders(records),
    )
    return _comparison(records, titles, highest, rows)


def _comparison(
    records: _Two,
    titles: tuple[str, str],
    highest: tuple[bool, bool],
    rows: tuple[Compared, ...],
) -> Comparison:
    left, right = records
    bars = (_bar(left, last=highest[0]), _bar(right, last=highest[1]))
    drawn = timeline.draw([timeline.Row((bar,)) for bar in bars])
    extent = f"0 to {words.took(drawn.extent)}" if drawn.zero is not None else words.TIME_UNKNOWN
    return Comparison(*titles, extent, drawn.rows if any(drawn.rows) else (), rows)


def _bar(side: Side, *, last: bool) -> timeline.Bar:
    form = {
        names.STATUS_COMPLETED: timeline.Form.COMPLETED,
        names.STATUS_OPEN: timeline.Form.OPEN,
        names.STATUS_FAILED: timeline.Form.LAST if last else timeline.Form.SUPERSEDED,
    }[side.status]
    return timeline.Bar(form, side.started_at, side.ended_at)


def _states(records: _Two, highest: tuple[bool, bool]) -> Compared:
    left, right = records
    said = (_state(left, last=highest[0]), _state(right, last=highest[1]))
    return Compared("State", said, None if left.status == right.status else _DIFFERS)


def _durations(records: _Two) -> Compared:
    left, right = (side.duration_ns for side in records)
    return Compared("Took", (_took(left), _took(right)), _change(left, right, "more", "less"))


def _state(side: Side, *, last: bool) -> Said:
    state = {
        names.STATUS_COMPLETED: State(Kind.COMPLETED, "Completed"),
        names.STATUS_OPEN: State(Kind.OPEN, "Open: no end received"),
        names.STATUS_FAILED: State(Kind.FAILED if last else Kind.SUPERSEDED, "Failed"),
    }[side.status]
    return Said(state.word, state)


def _idles(before: int | None, after: int | None) -> Iterator[Compared]:
    # Before the first attempt there is none to be known; then there is nothing to compare.
    if before is not None and after is not None:
        change = _change(before, after, "more", "less")
        yield Compared("Idle before", (_took(before), _took(after)), change)


def _attributes(records: _Two, left_out: frozenset[str]) -> Iterator[Compared]:
    left, right = (side.attributes for side in records)
    carried = left.keys() | right.keys()
    known = [key for key in _LABELS if key in carried]
    others = sorted(carried - _LABELS.keys() - _LEFT_OUT)
    for key in (*known, *others):
        if key not in left_out:
            foreign = key not in _LABELS
            same = _typed(left, key) == _typed(right, key)
            yield Compared(
                _LABELS.get(key, key),
                (_attribute(left, key), _attribute(right, key)),
                None if same else _DIFFERS,
                key=foreign,
            )


def _attribute(carried: Mapping[str, Value], key: str) -> Said:
    if key not in carried:
        return Said("none", muted=True)
    return Said(value(carried[key]), code=key in _CODE or key not in _LABELS)


def _typed(carried: Mapping[str, Value], key: str) -> tuple[type, object]:
    found = carried.get(key)
    return type(found), found


def _senders(records: _Two) -> Iterator[Compared]:
    left, right = (side.sender for side in records)
    for name, of_left, of_right in (
        ("Service", left.service_name, right.service_name),
        ("Service version", left.service_version, right.service_version),
        ("Instance", left.service_instance_id, right.service_instance_id),
        ("Sent by", left.user_agent, right.user_agent),
    ):
        if of_left or of_right:
            yield _texts(name, of_left, of_right)


def _texts(name: str, left: str | None, right: str | None, *, code: bool = False) -> Compared:
    change = None if left == right else _DIFFERS
    return Compared(name, (_text(left, code=code), _text(right, code=code)), change)


def _text(text: str | None, *, code: bool) -> Said:
    return Said(text, code=code) if text else _UNKNOWN


def _times(name: str, left: int | None, right: int | None) -> Compared:
    change = _change(left, right, "later", "earlier")
    return Compared(name, (_time(left), _time(right)), change)


def _time(time: int | None) -> Said:
    if time is None:
        return _UNKNOWN
    full = rfc3339(time)
    return Said(full.replace("T", " "), time=full)


def _took(took: int | None) -> Said:
    if took is None:
        return _UNKNOWN
    return Said(words.took(took) if took >= 0 else f"none, overlap {words.took(-took)}")


def _change(left: int | None, right: int | None, more: str, less: str) -> str | None:
    """By how much two numbers of nanoseconds differ, in words; None where they do not."""
    if left == right:
        return None
    if left is None or right is None:
        return _DIFFERS
    return f"{words.took(abs(right - left))} {more if right > left else less}"
