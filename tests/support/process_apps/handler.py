"""A function as a platform runs it that freezes its processes between calls, such as AWS Lambda.

Each line of standard input is a call: it names the run to record, and whether to flush before
answering. What the platform sees of a call is the line that is printed at its end.
"""

from __future__ import annotations

import sys

import flowmark_otel as flowmark
from tests.support.process_apps.record import record


def handler(run_id: str, *, flush: bool) -> str:
    """Record, and say what is not delivered yet."""
    record(run_id)
    if flush:
        try:
            flowmark.flush(timeout=20)
        except flowmark.DeliveryError:
            return "not delivered"
        return "delivered"
    return "recorded"


for line in sys.stdin:
    name, _, how = line.strip().partition(" ")
    sys.stdout.write(f"{handler(name, flush=how == 'flush')}\n")
    sys.stdout.flush()
