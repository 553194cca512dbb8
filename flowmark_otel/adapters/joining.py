"""A span that an instrumentation has opened for a try: it is made the attempt, none is opened.

So whoever reads the span, by its keys or by a signal, reads one attempt.
"""

from __future__ import annotations

from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode

from flowmark_otel import names
from flowmark_otel.adapters.naming import NAME_KEY
from flowmark_otel.adapters.recording import Call, failed_inside
from flowmark_otel.annotate.context import RUN_ID_KEY
from flowmark_otel.annotate.hook import client
from flowmark_otel.annotate.operation import is_failure
from flowmark_otel.annotate.options import type_name


class Joined:
    """A try on the current span, which somebody else ends; used like ``recording.Try``.

    What is written on it is what an adapter's own span would carry; its start is recorded with
    its end, since the keys came after it.
    """

    __slots__ = ("_before", "_ended", "_inside", "_span")

    def __init__(self, call: Call, span: Span, number: int) -> None:
        found = client()
        attributes = {**call.shared, names.ATTEMPT_NUMBER: number}
        span.set_attributes(attributes)
        found.say(span, attributes)
        self._span = span
        self._ended = False
        self._before = otel.get_current()
        inside: dict[str, object] = dict(self._before)
        if call.own_run:
            inside[RUN_ID_KEY] = call.shared[names.RUN_ID]
        if call.given:
            inside[NAME_KEY] = None
        self._inside = Context(inside)
        otel.attach(self._inside)

    def end(self, error: BaseException | None = None, *, code: str | None = None) -> None:
        """Leave it, and say how it ended: on the span, before that is ended."""
        if self._ended:
            return
        self._ended = True
        try:
            if otel.get_current() is self._inside:
                otel.attach(self._before)
            failure: dict[str, str] = {}
            if code is not None:
                failure[names.ERROR_CODE] = code
            elif error is not None and is_failure(error):
                failure[names.ERROR_TYPE] = type_name(type(error))
            if failure:
                self._fail(failure)
        except Exception as raised:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(raised)

    def _fail(self, failure: dict[str, str]) -> None:
        self._span.set_attributes(failure)
        client().say(self._span, failure)
        status = getattr(self._span, "status", None)
        if status is None or status.status_code is not StatusCode.ERROR:
            [said] = failure.values()
            self._span.set_status(Status(StatusCode.ERROR, said))
