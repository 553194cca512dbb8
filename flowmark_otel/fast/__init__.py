"""The fast path: finished spans to records without an envelope for each event.

What applications record most, attempts of operations that are as they should be, costs them more
as envelopes (dicts built, copied, looked through, dropped) than the exporter beside it takes for
the whole span. So the first span of a shape (its attribute keys, and whether it failed) is folded
by ``fold`` and written by ``wire``, as every span may be, and what is the same for all spans of
the shape is read off the result: which keys stand where, what is a default, the bytes around
them. Of the next ones only the values are looked up: one that passed its rule before is found as
it was written then, a new one is checked and written by the same rules. The events stay unwritten
and unfolded until somebody wants to see them or their bytes.

It is kept equal by owning no rule. Everything that it cannot say with certainty (a broken rule, a
run, a value of another type, lost attributes, events that folding reads) is left to the plain
path; and a law compares what both make of random spans, byte by byte.
"""

from flowmark_otel.fast.columns import is_operation_name
from flowmark_otel.fast.shapes import SHAPES, STARTING, Keys, learn, learn_start
from flowmark_otel.fast.spans import learned, unfolded_of
from flowmark_otel.fast.unfolded import BOTH, END, START, Unfolded

__all__ = [
    "BOTH",
    "END",
    "SHAPES",
    "START",
    "STARTING",
    "Keys",
    "Unfolded",
    "is_operation_name",
    "learn",
    "learn_start",
    "learned",
    "unfolded_of",
]
