"""Pure: retry conventions that exist already → observed attempts (contract, section 8)."""

from flowmark_otel.signals.convention import Convention
from flowmark_otel.signals.reading import (
    NO_SIGNALS,
    Attempt,
    NoAttempt,
    Signals,
    attempt_of,
    read,
)
from flowmark_otel.signals.table import ANY, ATTEMPTS, EVERY, OTHERS, SAFE, signals_of

__all__ = [
    "ANY",
    "ATTEMPTS",
    "EVERY",
    "NO_SIGNALS",
    "OTHERS",
    "SAFE",
    "Attempt",
    "Convention",
    "NoAttempt",
    "Signals",
    "attempt_of",
    "read",
    "signals_of",
]
