"""The linter for captured telemetry: what would be refused, what is not as it was meant (E5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher, get_close_matches
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.batch import Arrival, Batch, Verdict, prepare
from flowmark_otel.backend.judge import Judge
from flowmark_otel.backend.known import Known
from flowmark_otel.commands.explained import Explained, explain
from flowmark_otel.commands.files import Captured, items_in
from flowmark_otel.commands.wording import UNREADABLE, would_be_of_record, would_be_of_span
from flowmark_otel.errors import TooLarge, Unparsable
from flowmark_otel.fold import fold_log, fold_signals, fold_span
from flowmark_otel.model import Envelope, LogRecord, Refused, Rejection, Sender, Span
from flowmark_otel.signals import EVERY, NO_SIGNALS, Signals
from flowmark_otel.validate import RULES, rule_of, unknown_keys
from flowmark_otel.wire.decode import Item, Request

_ENVELOPE_ONLY: Final = frozenset(
    (
        names.EVENT_ID,
        names.EVENT_NAME,
        names.DEFAULTED,
        names.DURATION_NS,
        names.OBSERVED_NUMBER,
        names.OBSERVED_OUTCOME,
        names.OBSERVED_DURATION_NS,
        names.OBSERVED_SERIES,
        names.OBSERVED_SYSTEM,
    )
)
_KNOWN: Final = sorted(RULES)
_NEAR: Final = 0.75


class Refusal(NamedTuple):
    """One span or record that would be refused, in whole or in part.

    ``events`` are the ids of the refused events, none where no id can be derived; ``says`` holds
    a sentence for each broken rule: key, what was found, mend.
    """

    place: str
    item: int
    name: str
    events: tuple[str, ...]
    code: str
    says: tuple[str, ...]
    would_be: str


class Note(NamedTuple):
    """Something that is refused by nobody and still not as it was meant; ``item`` -1 is none."""

    place: str
    item: int
    name: str
    says: str


@dataclass
class Report:
    """What was found in all files together.

    ``events`` counts those that would be taken, ``events_refused`` those that would not; of
    annotated items alone. ``signals``: the spans that a convention of others is about.
    """

    requests: int = 0
    items: int = 0
    annotated: int = 0
    events: int = 0
    events_refused: int = 0
    faults: list[Note] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    signals: list[Explained] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether a backend would take everything."""
        return not self.faults and not self.refused


class _Read(NamedTuple):
    """One item with what it folds into."""

    request: Captured
    item: Item
    folded: tuple[Envelope | Refused, ...]
    signalled: bool = False

    @property
    def name(self) -> str:
        """The span's name, or the record's event name."""
        record = self.item.record
        if isinstance(record, Span):
            return record.name
        return record.event_name if isinstance(record, LogRecord) else ""


def lint(requests: Iterable[Captured], signals: Signals = NO_SIGNALS) -> Report:
    """Judge captured requests, in their order, as an empty backend would that reads ``signals``."""
    report = Report()
    elsewhere = _Elsewhere()
    judge = Judge(Known(), received_at=0)
    for read in _read(requests, report, signals):
        verdict = _judge(judge, read)
        if read.signalled:
            report.notes.extend(_contradictions(read, verdict))
            elsewhere.add(read)
            continue
        report.annotated += bool(read.folded)
        report.events += verdict.stored + verdict.duplicate
        report.events_refused += len(verdict.rejections)
        if verdict.rejections:
            report.refused.append(_refusal(read, verdict.rejections))
        report.notes.extend(_notes(read))
        elsewhere.add(read)
    report.notes.extend(elsewhere.notes())
    return report


def _judge(judge: Judge, read: _Read) -> Verdict:
    """What a backend would make of one item after those before it; what it would keep is let go."""
    arrivals = [Arrival(read.item.position, Sender(), event) for event in read.folded]
    prepared = prepare(Batch(0, names.ORIGIN_SERVER, arrivals))
    verdict = judge.judge(prepared, [0] * len(prepared.senders))
    judge.events.clear()
    judge.rejected.clear()
    return verdict


def _contradictions(read: _Read, verdict: Verdict) -> Iterator[Note]:
    """What a backend would keep apart of an observed attempt; no sender is told."""
    for message in dict.fromkeys(each.message for each in verdict.rejections):
        says = f"would not be kept as an attempt: {message}"
        yield Note(read.request.place, read.item.position, read.name, says)


def _decoded(request: Captured, signals: Signals) -> Request:
    """The items that are annotated, or that any convention is about."""
    try:
        return request.decode(EVERY)
    except TooLarge:  # for a backend, which looks for fewer, it may not be
        return request.decode(signals)


def _read(requests: Iterable[Captured], report: Report, signals: Signals) -> Iterator[_Read]:
    """The items that are looked at; counts all and collects the faults of whole requests."""
    for request in requests:
        report.requests += 1
        if not request.signal:
            if request.fault:
                report.faults.append(Note(request.place, -1, "", request.fault))
            continue
        try:
            decoded = _decoded(request, signals)
        except (TooLarge, Unparsable) as error:
            report.faults.append(Note(request.place, -1, "", str(error)))
            continue
        report.items += decoded.items or items_in(request)
        for item in decoded.marked:
            folded = fold_item(item)
            if folded or not isinstance(item.record, Span):
                yield _Read(request, item, folded)
                continue
            yield _Read(request, item, tuple(fold_signals(item.record, signals)), signalled=True)
            found = explain(item.record, signals, request.place, item.position)
            if found is not None:
                report.signals.append(found)


def fold_item(item: Item) -> tuple[Envelope | Refused, ...]:
    """The events of one decoded item, refused ones with its position."""
    record = item.record
    if isinstance(record, Refused):
        return (record._replace(item=item.position),)
    if isinstance(record, Span):
        folded = fold_span(record)
    else:
        event = fold_log(record)
        folded = [] if event is None else [event]
    return tuple(
        event._replace(item=item.position) if isinstance(event, Refused) else event
        for event in folded
    )


def _refusal(read: _Read, refused: list[Rejection]) -> Refusal:
    record = read.item.record
    if isinstance(record, Span):
        would_be = would_be_of_span(record)
    elif isinstance(record, LogRecord):
        would_be = would_be_of_record(record)
    else:
        would_be = UNREADABLE
    messages = list(dict.fromkeys(event.message for event in refused))
    # An end repeats what its start is refused for.
    distinct = [
        message
        for message in messages
        if not any(message != other and message in other for other in messages)
    ]
    return Refusal(
        read.request.place,
        read.item.position,
        read.name,
        tuple(event.event_id for event in refused if event.event_id),
        refused[0].code,
        tuple(distinct),
        would_be,
    )


def _notes(read: _Read) -> Iterator[Note]:
    record = read.item.record
    if isinstance(record, Refused):
        return
    where = (read.request.place, read.item.position, read.name)
    for key in unknown_keys(record.attributes):
        if isinstance(record, LogRecord) and key in _ENVELOPE_ONLY:
            continue
        yield Note(*where, f"{key} is not known and not carried{_suggestion(key)}")
    if record.dropped_attributes_count and read.folded:
        count = record.dropped_attributes_count
        yield Note(*where, f"lost {count} attributes to a limit; its metadata may be incomplete")


def _suggestion(key: str) -> str:
    nearest = max(_KNOWN, key=lambda known: _likeness(key, known))
    near = [nearest] if _likeness(key, nearest) >= _NEAR else []
    if not near and rule_of(names.RUN_RESULT_PREFIX + key.rpartition(".")[2]) is not None:
        stem = names.RUN_RESULT_PREFIX.rstrip(".")
        if get_close_matches(key.rpartition(".")[0], [stem], n=1, cutoff=_NEAR):
            near = [names.RUN_RESULT_PREFIX + key.rpartition(".")[2]]
    return f"; did you mean {near[0]}?" if near else ""


def _likeness(key: str, known: str) -> float:
    """How alike two keys are, from 0 to 1, from the first part on that differs.

    What all keys begin with says nothing: by it ``flowmark.attempt.foo`` would be like any other.
    """
    parts, others = key.split("."), known.split(".")
    while len(parts) > 1 and len(others) > 1 and parts[0] == others[0]:
        parts, others = parts[1:], others[1:]
    return SequenceMatcher(None, ".".join(parts), ".".join(others)).ratio()


class _Elsewhere:
    """Groups that occur in several runs whose ids nobody set: likely one run, torn apart."""

    def __init__(self) -> None:
        self._runs: defaultdict[tuple[str, str], dict[tuple[str, str], bool]] = defaultdict(dict)
        self._first: dict[tuple[str, str], _Read] = {}

    def add(self, read: _Read) -> None:
        """Remember the run of each attempt."""
        for envelope in read.folded:
            if isinstance(envelope, Refused):
                continue
            carried = envelope.attributes
            group = carried.get(names.ATTEMPT_GROUP_ID)
            if group is None:
                continue
            place = (str(carried[names.OPERATION_NAME]), str(group))
            run = (str(carried[names.WORKFLOW_NAME]), str(carried[names.RUN_ID]))
            defaulted = str(carried.get(names.DEFAULTED, "")).split(",")
            self._runs[place][run] = any(key in defaulted for key in names.IDENTITY_KEYS)
            self._first.setdefault(place, read)

    def notes(self) -> Iterator[Note]:
        """One for each such group."""
        for (operation, group), runs in self._runs.items():
            if len(runs) > 1 and any(runs.values()):
                read = self._first[operation, group]
                yield Note(
                    read.request.place,
                    -1,
                    "",
                    f"group {group!r} of operation {operation!r} occurs in {len(runs)} runs, whose"
                    f" identity came from service name or trace id; if they are one run, set"
                    f" {names.WORKFLOW_NAME} and {names.RUN_ID} on all its spans",
                )
