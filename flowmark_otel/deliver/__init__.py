"""Delivery of recorded events, and the truth about what was acknowledged (A22).

``Delivery`` takes events from whoever records (``model.Sink``), keeps them in a backlog, sends
them in batches and counts what became of each. ``Transport`` is the protocol to bring one's own
(A25).
"""

from flowmark_otel.deliver.backlog import Backlog, Handout, Queue
from flowmark_otel.deliver.delivery import Delivery
from flowmark_otel.deliver.transport import Answer, EventStatus, NoAnswer, Transport

__all__ = [
    "Answer",
    "Backlog",
    "Delivery",
    "EventStatus",
    "Handout",
    "NoAnswer",
    "Queue",
    "Transport",
]
