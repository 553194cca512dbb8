"""The footer: how far the evidence reaches."""

from __future__ import annotations

from flowmark_otel.backend.views import Arrival, rfc3339
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.pages.frame import Foot


def foot(arrival: Arrival) -> Foot:
    """``13:24:55Z``, with its day where that is not today, and ``2 s``."""
    latest = arrival.received_at
    if latest is None:
        return Foot()
    whole = rfc3339(latest)
    today = words.day(arrival.read_at) == words.day(latest)
    reaches = f"{whole[11:19]}Z" if today else f"{whole[:10]} {whole[11:19]}Z"
    return Foot(reaches, whole, words.ago(arrival.read_at - latest))
