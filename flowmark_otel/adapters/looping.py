"""Loops that a library runs by itself around one request: which try is open, and how it ends.

The OpenTelemetry context carries the loop, so that what the library does inside finds it.
"""

from __future__ import annotations

from opentelemetry import context as otel, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from flowmark_otel.adapters.recording import Call, Try, is_suppressed_now


class Loop:
    """One request that a library may try again; at most one try of it is open.

    Made before anything is known of it: nothing is recorded until it is ``planned``.
    """

    __slots__ = ("_before", "_call", "_inside", "_number", "_parent", "_tried", "is_new")

    def __init__(self) -> None:
        self._call: Call | None = None
        self._number = 0
        self._tried: Try | None = None
        self._parent: Span | None = None
        self._before = self._inside = Context()
        self.is_new = True

    @property
    def is_open(self) -> bool:
        """Whether a try was started that has not ended."""
        return self._tried is not None

    @property
    def is_recorded(self) -> bool:
        """Whether its tries are recorded."""
        return self._call is not None

    def plan(self, name: str, limit: int | None) -> None:
        """Record its tries, unless whoever calls has asked that nothing be recorded."""
        self.is_new = False
        if not is_suppressed_now():
            self._parent = trace.get_current_span()
            self._call = Call(name, limit)

    def ignore(self) -> None:
        """Record nothing of it: its policy allows one try, which nobody would try again."""
        self.is_new = False

    def start(self) -> None:
        """Start the next try, beside those before it."""
        if self._call is not None:
            self._number += 1
            self._tried = self._call.start(self._number, self._parent)

    def end(self, error: BaseException | None = None, *, code: str | None = None) -> None:
        """End the try that is open, if there is one: failed by ``error`` or ``code``, or not."""
        tried, self._tried = self._tried, None
        if tried is not None:
            tried.end(error, code=code)

    def enter(self, key: str) -> None:
        """Make it the loop that is found under ``key``, until it is left."""
        self._before = otel.get_current()
        self._inside = otel.set_value(key, self, self._before)
        otel.attach(self._inside)

    def leave(self, key: str) -> None:
        """Go back to where it was entered; in another task or thread, stay.

        Whatever was made current inside and is still so is left as well.
        """
        if otel.get_current().get(key) is self:
            otel.attach(self._before)


def loop_under(key: str) -> Loop | None:
    """The loop that runs, None outside of one."""
    found = otel.get_current().get(key)
    return found if isinstance(found, Loop) else None
