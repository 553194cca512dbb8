"""Loops that a library runs by itself around one request: which try is open, and how it ends.

The OpenTelemetry context carries the loop, so that what the library does inside finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from flowmark_otel.adapters.recording import Call, Try, failed_inside, is_suppressed_now
from flowmark_otel.annotate.context import current_context, making_current

_current: Final = current_context()
_make_current: Final = making_current()


class Loop:
    """One request that a library may try again; at most one try of it is open.

    Made before anything is known of it: nothing is recorded until it is ``planned``.
    """

    __slots__ = ("_before", "_call", "_number", "_parent", "_plan", "_tried", "is_new")

    def __init__(self) -> None:
        self._plan: tuple[str, int | None] | None = None
        self._call: Call | None = None
        self._number = 0
        self._tried: Try | None = None
        self._parent: Span | None = None
        self._before = Context()
        self.is_new = True

    @property
    def is_open(self) -> bool:
        """Whether a try was started that has not ended."""
        return self._tried is not None

    def plan(self, name: str, limit: int | None) -> None:
        """Record its tries, unless whoever calls has asked that nothing be recorded."""
        self.is_new = False
        if not is_suppressed_now():
            self._plan = (name, limit)

    def ignore(self) -> None:
        """Record nothing of it: its policy allows one try, which nobody would try again."""
        self.is_new = False

    def start(self, number: int | None = None) -> None:
        """Start the next try, beside those before it; ``number``: as the library counts it.

        The first one says where all of them belong.
        """
        if self._plan is None:
            return
        try:
            if self._call is None:
                self._parent = trace.get_current_span()
                self._call = Call(*self._plan)
            self._number = self._number + 1 if number is None else number
            self._tried = self._call.start(self._number, self._parent)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)

    def end(self, error: BaseException | None = None, *, code: str | None = None) -> None:
        """End the try that is open, if there is one: failed by ``error`` or ``code``, or not."""
        tried, self._tried = self._tried, None
        if tried is not None:
            tried.end(error, code=code)

    def wait(self) -> None:
        """The try that is open is over; how it ended is said later."""
        if self._tried is not None:
            self._tried.leave()

    def enter(self, key: str) -> None:
        """Make it the loop that is found under ``key``, until it is left."""
        self._before = before = _current()
        inside = Context(before)
        dict.__setitem__(inside, key, self)  # nobody else has it yet
        _make_current(inside)

    def leave(self, key: str) -> None:
        """Go back to where it was entered; in another task or thread, stay.

        Whatever was made current inside and is still so is left as well.
        """
        if _current().get(key) is self:
            _make_current(self._before)


@contextmanager
def running(
    loop: Loop, key: str, failed: Callable[[Loop, BaseException], None] = Loop.end
) -> Iterator[None]:
    """The block in which a library runs a loop that was entered under ``key``.

    Its open try ends with the block; where an error ends that, as ``failed`` says.
    """
    try:
        yield
    except BaseException as error:
        failed(loop, error)
        loop.leave(key)
        raise
    loop.end()
    loop.leave(key)


def loop_under(key: str) -> Loop | None:
    """The loop that runs, None outside of one."""
    found = _current().get(key)
    return found if isinstance(found, Loop) else None
