"""How adapters record: one call that is retried, and its tries as they happen.

Nothing here raises, waits or keeps an argument, a result or a message of an error: whatever goes
wrong is a diagnostic, and the try is not recorded.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from typing import Final, cast

from opentelemetry import baggage, context as otel, trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, Status, StatusCode

from flowmark_otel import names
from flowmark_otel.adapters.naming import NAME_KEY, given_name
from flowmark_otel.annotate.context import (
    GIVEN_KEY,
    RUN_ID_KEY,
    WORKFLOW_KEY,
    current_context,
    givers,
    making_current,
)
from flowmark_otel.annotate.hook import client
from flowmark_otel.annotate.operation import is_failure
from flowmark_otel.annotate.options import Fields, type_name
from flowmark_otel.annotate.recording import Ending, Place, Recording
from flowmark_otel.model import Diagnostic

_SUPPRESSED: Final = otel._SUPPRESS_INSTRUMENTATION_KEY  # noqa: SLF001 - it has no other name
_SUPPRESSED_BEFORE: Final = "suppress_instrumentation"  # as older releases write it
[_SPAN_KEY] = trace.set_span_in_context(INVALID_SPAN, Context())
_BITS: Final = 128
_ids: Final = random.Random()  # noqa: S311 - ids, no secrets; not the application's generator
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.seed)


_current: Final = current_context()
_make_current: Final = making_current()
_put: Final = dict.__setitem__  # into a context that nobody else has yet


def is_suppressed_now() -> bool:
    """Whether whoever calls has asked that nothing be recorded of it, as exporters do."""
    context = _current()
    return bool(context) and bool(context.get(_SUPPRESSED) or context.get(_SUPPRESSED_BEFORE))


def _has_run(context: Context) -> bool:
    """Whether spans that start here share a run without being told: of a trace, or of baggage."""
    if _SPAN_KEY in context and trace.get_current_span(context).get_span_context().is_valid:
        return True
    return _is_told_run(context)


def _is_told_run(context: Context) -> bool:
    return "baggage" in givers and baggage.get_baggage(names.RUN_ID, context) is not None


def failed_inside(error: Exception) -> None:
    """Say what should not have happened; if even that fails there is nobody to tell."""
    with suppress(Exception):
        message = f"{type_name(type(error))} in an adapter; an attempt is not recorded: {error}"
        client().sink.diagnose(Diagnostic(names.DIAGNOSTIC_INTERNAL, message))


class Call:
    """One call that is retried: what its tries share.

    ``name``: of the operation, unless the caller gives one. ``limit``: attempts allowed in total,
    None where the policy does not say. ``group_id``: the library's own where it has a real one;
    so ``run_id``, which is the run's where no workflow is active.
    """

    __slots__ = ("given", "name", "own_run", "shared")

    def __init__(
        self,
        name: str,
        limit: int | None = None,
        group_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        current = _current()
        group = f"{_ids.getrandbits(_BITS):032x}" if group_id is None else group_id
        self.given = NAME_KEY in current
        if self.given:
            name = given_name(current) or name
        self.name = name
        self.own_run = False
        shared: dict[str, str | int] = {}
        workflow, active = current.get(WORKFLOW_KEY), current.get(RUN_ID_KEY)
        if workflow is not None:
            shared[names.WORKFLOW_NAME] = cast("str", workflow)
        if active is not None:
            shared[names.RUN_ID] = cast("str", active)
        elif not (_is_told_run(current) if run_id else _has_run(current)):
            self.own_run = True
            shared[names.RUN_ID] = run_id or group  # one id is enough for what is one call
            givers.add("context")
        shared[names.OPERATION_NAME] = name
        shared[names.ATTEMPT_GROUP_ID] = group
        self.shared = shared
        self.allow(limit)

    def allow(self, limit: int | None) -> None:
        """What the tries that are started from now on say of the attempts allowed in total."""
        if type(limit) is int and limit > 0:  # a library takes what it is given
            self.shared[names.ATTEMPT_LIMIT] = limit

    def start(self, number: int, parent: Span | None = None) -> Try | None:
        """Start a try, numbered from 1, and make its span current; None if that went wrong.

        ``parent``: the span that it is below, where that is not the current one.
        """
        try:
            return Try(self, number, parent)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
            return None


class Try:
    """A try that was started, and is current. It is left once, and ended once.

    As the context manager of a block it ends where that does, as that does.
    """

    __slots__ = ("_before", "_client", "_end_ns", "_ended", "_inside", "_recording", "_span")

    def __init__(self, call: Call, number: int, parent: Span | None) -> None:
        self._ended = False
        self._end_ns = 0
        self._client = found = client()
        self._before = current = _current()
        if parent is not None and trace.get_current_span(current) is not parent:
            current = Context({**current, _SPAN_KEY: parent})
        attributes = {**call.shared, names.ATTEMPT_NUMBER: number}
        given = Context(current)
        _put(given, GIVEN_KEY, attributes)
        start_ns = found.clock.now_ns()
        self._span = span = found.tracer().start_span(
            call.name, given, attributes=attributes, start_time=start_ns
        )
        self._recording = None
        if not found.captured(span):
            place, fields = Place(current, start_ns), Fields({**attributes}, [])
            self._recording = Recording(
                found, names.RECORD_OPERATION, call.name, fields, place, span=span
            )
        self._inside = inside = Context(current)
        _put(inside, _SPAN_KEY, span)
        if call.own_run:
            _put(inside, RUN_ID_KEY, call.shared[names.RUN_ID])
        if call.given:
            _put(inside, NAME_KEY, None)
        _make_current(inside)

    def __enter__(self) -> None:
        """It was started already."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)

    def leave(self) -> None:
        """It has come to its end: its span is not current any more. How, ``end`` says later.

        No token is kept: a try may be left in another task or thread, where nothing is changed.
        """
        try:
            if _current() is self._inside:
                _make_current(self._before)
            self._end_ns = self._client.clock.now_ns()
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)

    def end(self, error: BaseException | None = None, *, code: str | None = None) -> None:
        """Leave it if need be and record its end.

        It failed if ``error`` is a failure or there is a ``code`` for one; of the error only the
        type is recorded.
        """
        if self._ended:
            return
        self._ended = True
        if not self._end_ns:
            self.leave()
        try:
            if error is None and code is None and self._recording is None:  # the usual way
                self._span.end(self._end_ns or None)
            elif code is not None:
                self._end({names.ERROR_CODE: code})
            elif error is not None and is_failure(error):
                self._end({names.ERROR_TYPE: type_name(type(error))})
            else:  # a generator closed, a program that ends well
                self._end({})
        except Exception as raised:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(raised)

    def _end(self, failure: dict[str, str]) -> None:
        """End it: failed if there is anything to say of a failure."""
        if self._recording is not None:
            self._recording.end(Ending(bool(failure), failure))
            return
        for key, value in failure.items():
            self._span.set_attribute(key, value)
            self._span.set_status(Status(StatusCode.ERROR, value))
        self._span.end(self._end_ns or None)
