"""Signals of real libraries under their real instrumentations → observed attempts (section 8)."""

from __future__ import annotations

from typing import Final

import pytest

from flowmark_otel import names
from flowmark_otel.fold import digest
from flowmark_otel.signals import (
    ANY,
    ATTEMPTS,
    EVERY,
    NO_SIGNALS,
    Attempt,
    NoAttempt,
    read,
    signals_of,
)
from tests.support.signals import NAMES, attempts_in, envelopes_in, spans_in

SAFE: Final = signals_of((names.SIGNALS_SAFE,))
_TASK: Final = "df9c594d-d104-46a7-9872-4c5de352e5e9"
_GIVEN_UP: Final = "e95c8fd5-123b-418f-b2ad-ec677f27812a"

SHOWN: Final[dict[str, tuple[str, list[tuple[str, int, str]]]]] = {
    "celery_retry": (
        "safe",
        [
            ("t.x", 1, "failed"),
            ("t.x", 2, "failed"),
            ("t.x", 3, "completed"),
            ("t.y", 1, "failed"),
            ("t.y", 2, "failed"),
        ],
    ),
    "celery_links": (
        "safe",
        [("t.fetch", 1, "failed"), ("t.fetch", 2, "failed"), ("t.fetch", 3, "completed")],
    ),
    "remoulade": ("safe", [("fetch", 1, "open"), ("fetch", 2, "open"), ("fetch", 3, "open")]),
    "aws_headers": (
        "safe",
        [("POST /", 1, "failed"), ("POST /", 2, "failed"), ("POST /", 3, "completed")],
    ),
    "azure": ("azure_core", [("GET", 1, "failed"), ("GET", 2, "failed"), ("GET", 3, "completed")]),
    "azure_redirect": ("azure_core", [("GET", 1, "failed"), ("GET", 2, "completed")]),
    "hatchet": ("hatchet", [("job:step", 2, "failed"), ("job:step", 3, "completed")]),
    "gcp_pubsub": ("gcp_pubsub", [("s subscribe", 1, "failed"), ("s subscribe", 2, "completed")]),
}
"""The attempts of each capture that has some: what has to be enabled, operation, number, status."""

REASONS: Final[dict[str, tuple[str, int, str]]] = {
    "celery_retry": ("celery", 5, "it is the message on its way, not a try of the task"),
    "celery_links": ("celery", 3, "it is the message on its way, not a try of the task"),
    "remoulade": ("remoulade", 5, "it is the message on its way, not a try of the actor"),
    "azure_core_resend_count": ("http_resend", 2, "no attribute says which sends belong together"),
    "azure_redirect": ("azure_core", 1, "302 is a redirect or challenge: no failure"),
    "hatchet": ("hatchet", 1, "hatchet.retry_count is absent, and that does not mean the first"),
    "gcp_pubsub": ("gcp_pubsub", 1, "delivery_attempt is 0, which stands for not known"),
    "botocore_dynamodb_503_503_200": ("botocore", 1, "the span contains 3 sends; one span for all"),
    "envoy": ("envoy", 2, "x-request-id names the whole request, not one call of it"),
    "stainless": ("stainless", 3, "no attribute says which sends belong together"),
}
"""Captures with spans that a convention is about and that are no attempts: of which convention, how
many, and why."""


def test_each_capture_is_in_one_of_these_tables_or_says_nothing_of_tries() -> None:
    """E3: what is captured is either shown, or has its reason, or carries no retry signal."""
    silent = {
        name for name in NAMES if not [span for span in spans_in(name, EVERY) if _marked(span)]
    }
    assert silent == {
        *("aiohttp_redirect", "httpx_redirect", "httpx_under_tenacity_no_parent"),
        *("requests_only_httpadapter_retry", "requests_redirect", "requests_urllib3_both"),
        *("gcs", "urllib3_redirect", "urllib3_retry_503_503_200"),
    }
    assert set(NAMES) - silent == SHOWN.keys() | REASONS.keys()


def _marked(span: object) -> bool:
    return any(read(span, row) is not None for row in EVERY.conventions)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [".json", ".pb"])
@pytest.mark.parametrize("name", SHOWN)
def test_tries_become_observed_attempts(name: str, suffix: str) -> None:
    """E3, D2: what instrumentations write is read with its counting base, in either encoding.

    Failed tries of UNSET status are failed where a named attribute says so, open where none does.
    """
    word, expected = SHOWN[name]
    envelopes = envelopes_in(name, signals_of((word,)), suffix)
    found = attempts_in(envelopes)
    assert [(operation, number, status) for operation, _, number, status in found] == expected
    assert len({(operation, group) for operation, group, _, _ in found}) == len(
        {operation for operation, _, _ in expected}
    )


@pytest.mark.parametrize("name", sorted({*NAMES} - SHOWN.keys()))
def test_what_names_no_group_or_number_is_no_attempt(name: str) -> None:
    """A10: one span for all tries, redirects, numbers without a group: nothing is invented."""
    assert envelopes_in(name, ANY) == []


@pytest.mark.parametrize("name", SHOWN)
def test_only_facts_are_read_by_default(name: str) -> None:
    """Section 8: what is not among safe is read if it is named, and by none nothing is."""
    word, _ = SHOWN[name]
    assert bool(envelopes_in(name, SAFE)) == (word == "safe")
    assert envelopes_in(name, NO_SIGNALS) == []


@pytest.mark.parametrize("name", REASONS)
def test_what_is_no_attempt_has_its_reason(name: str) -> None:
    """Section 8, E5: a span that marks a try and is no attempt is refused with a reason."""
    signal, count, reason = REASONS[name]
    said = []
    for span in spans_in(name, EVERY):
        found = [read(span, row) for row in EVERY.conventions]
        if not any(isinstance(each, Attempt) for each in found):
            said += [each for each in found if isinstance(each, NoAttempt)]
    assert [(each.signal, reason in each.says) for each in said] == [(signal, True)] * count


def test_group_ids_are_those_of_the_convention() -> None:
    """A3: the group is what the library itself calls the unit that it retries."""
    groups = {group for _, group, _, _ in attempts_in(envelopes_in("celery_retry", SAFE))}
    assert groups == {_TASK, _GIVEN_UP}


def test_the_limit_is_taken_where_it_is_named() -> None:
    """B1: the attempts allowed in total, where the convention says them."""
    limits = {event.attributes[names.ATTEMPT_LIMIT] for event in envelopes_in("aws_headers", SAFE)}
    assert limits == {5}


@pytest.mark.parametrize("name", SHOWN)
def test_both_encodings_fold_into_the_same_events(name: str) -> None:
    """A8: the same spans as JSON and as protobuf give the same ids and digests."""
    signals = signals_of((SHOWN[name][0],))
    json, protobuf = (envelopes_in(name, signals, suffix) for suffix in (".json", ".pb"))
    assert [(each.event_id, digest(each)) for each in json] == [
        (each.event_id, digest(each)) for each in protobuf
    ]


def test_every_convention_that_is_read_was_seen_running() -> None:
    """Issue rule: what is read is proven with a real capture."""
    proven = {
        found.signal
        for name in SHOWN
        for span in spans_in(name, ANY)
        for row in ATTEMPTS
        if isinstance(found := read(span, row), Attempt)
    }
    assert proven == set(names.SIGNAL_NAMES)
