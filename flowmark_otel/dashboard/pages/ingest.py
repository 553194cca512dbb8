"""Can the rest be trusted? What arrived, from whom, and what holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import Ingest, SenderStats, rfc3339
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.pages.frame import Fact, Frame, Piece
from flowmark_otel.dashboard.pages.links import EVIDENCE, INGEST, query

_DIGITS: Final = 2
_LONG: Final = 3_600 * words.SECOND


class State(NamedTuple):
    """Events of one state and reason; ``sub``: a part of them that is said apart."""

    word: str
    href: str | None
    number: str
    share: str
    sub: str | None


class Sender(NamedTuple):
    """Who sent, and how its clock compares; ``ahead``: it runs ahead of ours."""

    service: str
    version: str | None
    instance: str | None
    agent: str | None
    events: str
    difference: str
    ahead: bool
    latest: str | None
    latest_day: str | None
    latest_title: str | None


@dataclass(frozen=True, slots=True)
class IngestPage:
    """The intake of one project; ``sentence`` is the finding."""

    template: ClassVar[str] = "ingest.html"
    frame: Frame
    sentence: tuple[Piece, ...]
    states: tuple[State, ...]
    received: str
    store: tuple[Fact, ...]
    kept: tuple[Fact, ...]
    senders: tuple[Sender, ...]
    senders_note: str | None
    events_csv: str
    senders_csv: str


def ingest_page(frame: Frame, view: Ingest, retain: int | None) -> IngestPage:
    """The context, from the API's answer; ``retain``: seconds that a run is kept, None for ever."""
    counts = _counts(view)
    received = sum(counts.values())
    shown = len(view.senders)
    return IngestPage(
        frame=frame,
        sentence=_sentence(counts, received),
        states=tuple(_states(view, counts, received)),
        received=f"{received:,}",
        store=_store(view),
        kept=_kept(view, retain),
        senders=tuple(map(_sender, view.senders)),
        senders_note=f"The latest {shown} to appear, of {view.sender_count:,}."
        if view.sender_count > shown
        else None,
        events_csv=query(f"{INGEST}.csv", {"table": "events"}),
        senders_csv=query(f"{INGEST}.csv", {"table": "senders"}),
    )


def _counts(view: Ingest) -> Mapping[tuple[str, str], int]:
    """Events by state and reason; a duplicate is one whether its run is kept or not."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in view.events:
        reason = each.reason if each.state == names.STATE_REJECTED else None
        counts[each.state, reason or ""] += each.count
    return counts


def _sentence(counts: Mapping[tuple[str, str], int], received: int) -> tuple[Piece, ...]:
    if not received:
        return (Piece("No event has been received."),)
    rejected = sum(count for (state, _), count in counts.items() if state == names.STATE_REJECTED)
    return (
        Piece(f"{received:,}", data=True),
        Piece(f" {'event' if received == 1 else 'events'} received, "),
        Piece(words.percent(received - rejected, received), data=True),
        Piece(f" of them stored or known already; {rejected:,} rejected."),
    )


def _states(view: Ingest, counts: Mapping[tuple[str, str], int], received: int) -> list[State]:
    found = []
    for state, reason in sorted(counts, key=_order):
        count = counts[state, reason]
        parts = [
            (f"of which {names.REASON_EXPIRED}", _sum(view, state, names.REASON_EXPIRED))
            if state == names.DUPLICATE
            else ("", 0),
            ("from browsers", _browser(view, state, reason)),
        ]
        rejected = state == names.STATE_REJECTED
        found.append(
            State(
                f"rejected: {reason}" if rejected else state,
                query(EVIDENCE, {"kind": "rejected"}) if rejected else None,
                f"{count:,}",
                words.percent(count, received),
                ", ".join(f"{word} {number:,}" for word, number in parts if number) or None,
            )
        )
    return found


def _order(key: tuple[str, str]) -> tuple[int, str]:
    order = (names.STORED, names.DUPLICATE, names.STATE_REJECTED)
    state, reason = key
    return order.index(state) if state in order else len(order), reason


def _sum(view: Ingest, state: str, reason: str) -> int:
    return sum(each.count for each in view.events if (each.state, each.reason) == (state, reason))


def _browser(view: Ingest, state: str, reason: str) -> int:
    return sum(
        each.count
        for each in view.events
        if each.origin == names.ORIGIN_BROWSER
        and each.state == state
        and (state != names.STATE_REJECTED or (each.reason or "") == reason)
    )


def _store(view: Ingest) -> tuple[Fact, ...]:
    each = view.bytes_per_attempt
    facts = [
        Fact("Size", f"{words.size(view.store_bytes)}, all projects together"),
        Fact("Bytes per attempt", words.NOTHING if each is None else f"{each:,}"),
        Fact("Schema", view.schema, code=True),
    ]
    if view.waiting_runs:
        facts.append(
            Fact("Not summarised", f"{words.several(view.waiting_runs, 'run')}, changed lately")
        )
    return tuple(facts)


def _kept(view: Ingest, retain: int | None) -> tuple[Fact, ...]:
    return (
        Fact(
            "Keep",
            "for ever" if retain is None else f"{_kept_for(retain)} after a run's latest arrival",
        ),
        _time("Oldest evidence", view.oldest_evidence),
        _time("Latest run", view.latest_evidence),
    )


def _kept_for(seconds: int) -> str:
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            return words.several(seconds // size, unit)
    return words.several(seconds, "second")


def _time(name: str, time: int | None) -> Fact:
    if time is None:
        return Fact(name, "none", muted=True)
    return Fact(name, words.moment(time), time=rfc3339(time))


def _sender(each: SenderStats) -> Sender:
    latest = each.latest_received_at
    p50, p95 = each.behind_p50_ns, each.behind_p95_ns
    return Sender(
        each.service_name or "unknown service",
        each.service_version,
        each.service_instance_id,
        each.user_agent,
        f"{each.events:,}",
        words.NOTHING if p50 is None or p95 is None else f"{_signed(p50)} / {_signed(p95)}",
        p50 is not None and p50 < 0,
        None if latest is None else words.clock(latest)[:8],
        None if latest is None else words.day(latest),
        None if latest is None else rfc3339(latest),
    )


def _signed(duration: int) -> str:
    """``+0.41``, ``−1.80``: seconds with a sign, so that the direction is never guessed."""
    size = abs(duration)
    text = words.lasted(size) if size >= _LONG else f"{size / words.SECOND:,.{_DIGITS}f}"
    return f"{'−' if duration < 0 else '+'}{text}"
