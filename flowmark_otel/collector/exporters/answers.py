"""What the answer of a plain OTLP endpoint means for what was sent (OTLP specification).

Pure. No receipt is asked for: what is carried here is telemetry, for whoever draws traces.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.collector.element import ElementError
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.policy import GiveUp, Halve, Judge, Try, Wait, decide, encoding_of
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.errors import Unparsable
from flowmark_otel.validate.secrets import redact_text
from flowmark_otel.wire import receipt

_SUCCESSES: Final = range(200, 300)
_PAGE: Final = "text/html"
_ONCE: Final = Try(number=1, elapsed=0.0, events=1, jitter=0.0)
_LIMITS: Final = Limits(budget=None, broken=0.0)
"""The tries are the node's; a 500 or INTERNAL is not worth another one, as OTLP has it."""


class Partial(NamedTuple):
    """A partial success: what was not taken, for good. No items are a warning."""

    rejected: int
    message: str


def fault_of(outcome: Answer | NoAnswer, now_ns: int) -> ElementError | None:
    """Why what was sent was not taken; None if it was."""
    if isinstance(outcome, Answer) and _is_success(outcome):
        return None
    decided = decide(outcome, _ONCE, _LIMITS, now_ns)
    if isinstance(decided, Wait):
        return ElementError(
            decided.reason,
            redact_text(decided.detail),
            retry_after=decided.seconds if decided.told else None,
            paused=decided.paused,
        )
    if isinstance(decided, GiveUp):
        return ElementError(decided.reason, redact_text(decided.detail), permanent=True)
    return _refused(decided)


def partial_of(answer: Answer) -> Partial | None:
    """What a success says of a part that was not taken; None if it says nothing."""
    if not answer.body:
        return None
    try:
        found = receipt.decode(answer.body, encoding_of(answer))
    except Unparsable:
        return None
    if found.rejected_items <= 0 and not found.error_message:
        return None
    return Partial(max(found.rejected_items, 0), redact_text(found.error_message))


def _is_success(answer: Answer) -> bool:
    """Any 2xx, as OTLP exporters have it, but for the page of a middlebox."""
    if answer.grpc:
        return answer.status == 0
    return answer.status in _SUCCESSES and answer.content_type != _PAGE


def _refused(decided: Judge | Halve) -> ElementError:
    if isinstance(decided, Judge) and decided.answer.status in _SUCCESSES:
        msg = f"HTTP {decided.answer.status} with a page instead of an OTLP answer"
        return ElementError(names.REASON_UNAVAILABLE, msg, paused=True)
    words = decided.detail if isinstance(decided, Halve) else "it judged what was sent, and refused"
    return ElementError(names.REASON_REJECTED, redact_text(words), permanent=True)
