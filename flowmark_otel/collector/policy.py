"""What a node does after a try that failed: try again, or be done with it (C1, C2, C5).

Pure: time and chance are arguments. Times are seconds.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from flowmark_otel.collector.element import INVALID_ENVELOPE

OnError: TypeAlias = Literal["fail", "continue", "route"]

_MOST_DOUBLINGS: Final = 32


class Rules(NamedTuple):
    """The options of a node, as far as failures go.

    ``deadline`` bounds one message with all its tries and waits, ``try_seconds`` one try.
    ``keeps``: what failed only for the moment is neither dropped nor routed, whatever ``on_error``
    says (contract, section 9, of the ``flowmark`` exporter).
    """

    on_error: OnError = "fail"
    max_attempts: int = 1
    first_wait: float = 0.2
    longest_wait: float = 10.0
    retry_on: frozenset[str] = frozenset()
    no_retry_on: frozenset[str] = frozenset()
    try_seconds: float = 10.0
    deadline: float = 60.0
    keeps: bool = False


class Failed(NamedTuple):
    """A try that failed: its error name of section 9; the rest as in ``ElementError``."""

    name: str
    permanent: bool = False
    paused: bool = False
    retry_after: float | None = None


class Again(NamedTuple):
    """Try again after so many seconds."""

    seconds: float


class Over(NamedTuple):
    """No other try of this message; what becomes of it."""

    then: OnError


def try_seconds(elapsed: float, rules: Rules) -> float:
    """How long the next try may take; not above zero where the message is out of time."""
    return min(rules.try_seconds, rules.deadline - elapsed)


def after(failed: Failed, tried: int, elapsed: float, jitter: float, rules: Rules) -> Again | Over:
    """What follows a failed try; ``tried`` counts from 1, ``jitter`` is from 0 to 1.

    A wait that the other side named is kept, be it longer than any of ours, unless the deadline
    comes before.
    """
    if tried < rules.max_attempts and _may_help(failed, rules):
        wait = backoff(tried, jitter, rules) if failed.retry_after is None else failed.retry_after
        if elapsed + wait < rules.deadline:
            return Again(wait)
    return Over(fate_of(failed, rules))


def fate_of(failed: Failed, rules: Rules) -> OnError:
    """What becomes of a message that failed in the end."""
    return "fail" if rules.keeps and not failed.permanent else rules.on_error


def backoff(tried: int, jitter: float, rules: Rules) -> float:
    """Seconds after try ``tried``: doubling, at most the longest; the jitter takes up to half."""
    full = min(rules.first_wait * 2.0 ** min(tried - 1, _MOST_DOUBLINGS), rules.longest_wait)
    return full * (1.0 - jitter / 2.0)


def _may_help(failed: Failed, rules: Rules) -> bool:
    """Bad input is never tried again unless it is listed; nor is what cannot be mended soon."""
    if failed.name in rules.no_retry_on:
        return False
    if failed.name in rules.retry_on:
        return True
    hopeless = failed.permanent or failed.paused or failed.name == INVALID_ENVELOPE
    return not rules.retry_on and not hopeless
