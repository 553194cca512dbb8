"""Diagnostics: to the application's callback, and as one log line for a cause (section 6)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.model import Diagnostic
from flowmark_otel.validate.secrets import redact_text

QUIET_SECONDS: Final = 60.0
"""How long a cause that has no end of its own is not logged again."""

_MAX_WAITING: Final = 1000
_PATIENCE: Final = 1.0
_log = logging.getLogger("flowmark_otel")

OnDiagnostic = Callable[[Diagnostic], object]


class Reporter:
    """Takes diagnostics from any thread and reports them where that blocks no recording.

    A *condition* (no answer, no acknowledgement) is reported once in its epoch, which ends when it
    is over; everything else reaches the callback each time and the log once a minute and cause.
    Taking one up needs no lock, each step being atomic: a signal handler may do it anywhere.
    """

    def __init__(self, clock: Clock, callback: OnDiagnostic | None) -> None:
        self._clock = clock
        self._callback = callback
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._waiting: deque[tuple[Diagnostic, bool]] = deque()
        self._conditions: set[str] = set()
        self._counts = dict.fromkeys(names.DIAGNOSTIC_CODES, 0)
        # Guards what follows, and is held while a callback runs, so that a flush returns after
        # what it caused was reported.
        self._turn = threading.RLock()
        self._logged: dict[str, float] = {}

    def post(self, diagnostic: Diagnostic) -> None:
        """Report an event or a call; cheap, and taken up by ``drain``."""
        self._count(diagnostic.code)
        if len(self._waiting) < _MAX_WAITING:  # beyond that the count alone tells
            self._waiting.append((diagnostic, False))

    def condition(self, code: str, message: str) -> None:
        """Report that something is the matter, once until it is over."""
        if code not in self._conditions:
            self._conditions.add(code)
            self._count(code)
            self._waiting.append((Diagnostic(code, message), True))

    def over(self, *codes: str) -> None:
        """These conditions ended; reported where they were."""
        ended = [code for code in codes if code in self._conditions]
        if ended:
            self._conditions.difference_update(ended)
            self._count(names.DIAGNOSTIC_RESUMED)
            message = f"no longer {', '.join(ended)}"
            self._waiting.append((Diagnostic(names.DIAGNOSTIC_RESUMED, message), True))

    def counts(self) -> Mapping[str, int]:
        """How often each code was reported."""
        return {code: number for code, number in self._counts.copy().items() if number}

    def drain(self) -> None:
        """Log and call back; on the sender's thread, or that of a flush."""
        if not self._turn.acquire(timeout=_PATIENCE):
            return  # a callback hangs: whoever runs it goes on when it ends
        try:
            while self._waiting:
                given, once = self._waiting.popleft()
                diagnostic = given._replace(message=redact_text(given.message))
                if once or self._is_due(diagnostic.code):
                    self._write(diagnostic)
                self._call(diagnostic)
        finally:
            self._turn.release()

    def after_fork(self) -> None:
        """In a child: nothing was reported."""
        self._begin_anew()

    def _count(self, code: str) -> None:
        self._counts.setdefault(code, 0)
        self._counts[code] += 1

    def _is_due(self, code: str) -> bool:
        now = self._clock.monotonic()
        last = self._logged.get(code)
        if last is not None and now - last < QUIET_SECONDS:
            return False
        self._logged[code] = now
        return True

    def _write(self, diagnostic: Diagnostic) -> None:
        from flowmark_otel.wire.status import printable  # noqa: PLC0415 - it imports protobuf

        resumed = diagnostic.code == names.DIAGNOSTIC_RESUMED
        about = f" ({printable(diagnostic.event_id)})" if diagnostic.event_id else ""
        _log.log(
            logging.INFO if resumed else logging.WARNING,
            "%s: %s%s",
            diagnostic.code,
            printable(diagnostic.message),
            about,
            extra={
                "flowmark_diagnostic_code": diagnostic.code,
                "flowmark_event_id": diagnostic.event_id,
            },
        )

    def _call(self, diagnostic: Diagnostic) -> None:
        if self._callback is None:
            return
        try:
            self._callback(diagnostic)
        except Exception:  # noqa: BLE001 - whatever the application's code raises
            # Not reported through itself: a callback that always fails would never end.
            self._count(names.DIAGNOSTIC_CALLBACK_FAILED)
            if self._is_due(names.DIAGNOSTIC_CALLBACK_FAILED):
                _log.exception("%s: on_diagnostic raised", names.DIAGNOSTIC_CALLBACK_FAILED)
