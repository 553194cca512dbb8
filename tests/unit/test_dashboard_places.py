"""Places of a group: kinds, gaps, idle times, claims, and folding of long strips."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowmark_otel import names
from flowmark_otel.dashboard.marks import Kind
from flowmark_otel.dashboard.places import Folded, Place, fold, lost_ns, places, uncertain
from tests.support import run_views as views


def _shown(found: tuple[Place | Folded, ...]) -> list[str]:
    return [
        f"{item.label} folded" if isinstance(item, Folded) else f"{item.label} {item.kind.value}"
        for item in found
    ]


def test_every_mark_stands_in_number_order_and_gaps_merge() -> None:
    """A9, A10: attempts, gaps and conflicts stand by number; consecutive gaps are one place."""
    assert _shown(places(views.every_mark())) == [
        "1 superseded",
        "2 conflict",
        "3–4 none",
        "5 open",
        "6 completed",
        "7 failed",
    ]


def test_only_the_highest_known_failure_is_filled() -> None:
    """A10: a failure below a number that is known only from a refused record is history as well."""
    group = replace(
        views.group((views.attempt(1, 0, 1, "E"),), "undetermined"),
        conflicts=(2,),
        rejected=(views.rejected(2, names.OPERATION_STARTED, 2.0),),
    )
    first, second = places(group)
    assert (first.kind, second.kind) == (Kind.SUPERSEDED, Kind.CONFLICT)
    assert second.attempt is None
    assert [claim.status for claim in second.claims] == ["open"]


def test_idle_time_needs_both_neighbours_and_may_be_negative() -> None:
    """A10: idle time is known between consecutive numbers with both times only, as sent."""
    idle = [place.idle_ns for place in places(views.every_mark())]
    assert idle == [None, 450_000_000, None, None, None, 660_000_000]
    ninth = places(views.flood())[8]
    assert ninth.idle_ns == -50_000_000


def test_the_events_of_a_refused_record_stand_together() -> None:
    """A6, A9: a refused record is one claim with its own times, state and events."""
    (claim,) = places(views.every_mark())[1].claims
    assert claim.operation_id == "8c6d0b2ca316186f"
    assert (claim.status, claim.started_at, claim.ended_at) == (
        "completed",
        views.at(1.06),
        views.at(1.66),
    )
    assert len(claim.events) == 2
    assert claim.error is None


def test_a_refused_record_keeps_the_error_of_its_own_end() -> None:
    """A6, A9: the code that a refused record failed with, its type where it names no code."""
    group = views.every_mark()
    for given, said in (
        ({names.ERROR_CODE: "CRM_LATE", names.ERROR_TYPE: "TimeoutError"}, "CRM_LATE"),
        ({names.ERROR_TYPE: "TimeoutError"}, "TimeoutError"),
        ({}, None),
    ):
        failed = replace(views.rejected(2, names.OPERATION_FAILED, 1.66), attributes={**given})
        (claim,) = places(replace(group, rejected=(failed,)))[1].claims
        assert (claim.status, claim.error) == ("failed", said)


@pytest.mark.parametrize("count", [1, 12])
def test_twelve_places_are_drawn_as_they_are(count: int) -> None:
    """A9: a strip of up to twelve places folds nothing."""
    assert len(fold(places(views.flood(count)))) == count


def test_a_long_strip_keeps_the_first_two_and_the_last_six() -> None:
    """A9: from thirteen on the middle is "n more", with nothing lost from the count."""
    drawn = fold(places(views.flood(30)))
    assert [item.label for item in drawn] == ["1", "2", "3–24", *map(str, range(25, 31))]
    middle = drawn[2]
    assert isinstance(middle, Folded)
    assert middle.kinds == ((Kind.SUPERSEDED, 22),)


def test_conflicts_and_gaps_are_never_folded_away() -> None:
    """A10: what is uncertain stays visible in the middle of a long strip."""
    group = views.flood(30)
    kept = tuple(one for one in group.attempts if one.number not in (10, 11))
    kept = tuple(replace(one, conflict=True) if one.number == 20 else one for one in kept)
    drawn = fold(places(replace(group, attempts=kept, gaps=((10, 11),), conflicts=(20,))))
    assert _shown(drawn)[2:7] == [
        "3–9 folded",
        "10–11 none",
        "12–19 folded",
        "20 conflict",
        "21–24 folded",
    ]


def test_uncertain_wherever_a_gap_an_open_attempt_or_a_conflict_is() -> None:
    """A10, A11: such groups read "at least"; others do not."""
    assert uncertain(places(views.every_mark()))
    assert uncertain(places(views.group((views.attempt(1, 0, None),), "open")))
    assert not uncertain(places(views.flood()))


def test_time_lost_counts_failed_attempts_below_the_highest_and_positive_idle_time() -> None:
    """E4: the last attempt's own duration is not lost, nor is an overlap."""
    lost = views.group(
        (views.attempt(1, 0, 1, "E"), views.attempt(2, 3, 4, "E"), views.attempt(3, 3.5, 9)),
        "after_retry",
    )
    assert lost_ns(places(lost)) == 4_000_000_000
