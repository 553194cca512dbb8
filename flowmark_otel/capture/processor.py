"""The span processor: early starts of annotated spans, and their ends (D1, E1)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from flowmark_otel import names
from flowmark_otel.annotate import hook
from flowmark_otel.annotate.context import RUN_ID_KEY, current_context, givers
from flowmark_otel.annotate.seconds import time_to_wait
from flowmark_otel.capture.folded import Finished, fold_end, fold_start, write
from flowmark_otel.capture.freeze import OPERATION_SETTLED, START_KEYS, is_early
from flowmark_otel.capture.identity import missing_identity
from flowmark_otel.capture.journal import Journal, Opened, journal_of
from flowmark_otel.capture.quick import ended_of, started_of, takes_all
from flowmark_otel.capture.reading import (
    ResourceView,
    attributes_of,
    held_by,
    is_marked,
    says_nothing,
    span_key,
)
from flowmark_otel.capture.whole import UNLIMITED, given_at_start, limits_of, mend
from flowmark_otel.config.client import ACCEPT, client_options
from flowmark_otel.errors import InvalidUse
from flowmark_otel.model import Diagnostic, Envelope, Refused, Sink
from flowmark_otel.signals import signals_of

_current: Final = current_context()
_KEPT: Final = frozenset((*START_KEYS, names.RECORD_TYPE))
_SHUTDOWN_SECONDS: Final = 5.0
FLUSH_MILLIS: Final = 30_000


class FlowmarkSpanProcessor(SpanProcessor):
    """Records the annotated spans of a tracer provider into a sink; register it first.

    ``sink``: where events go; None is the client's, configured at first use. ``accept_baggage``:
    whether identity may come from baggage; None asks ``FLOWMARK_BAGGAGE``. ``signals``: which
    conventions are read as attempts; None asks ``FLOWMARK_SIGNALS``. Nothing is raised into the
    application, but ``InvalidUse`` under ``FLOWMARK_STRICT`` where the client's sink is used.

    A concurrent multi-processor calls its processors in threads that have no context: there give
    ``context`` to ``start_span``, or identity as attributes.
    """

    def __init__(
        self,
        sink: Sink | None = None,
        *,
        accept_baggage: bool | None = None,
        signals: tuple[str, ...] | None = None,
    ) -> None:
        if accept_baggage is None or signals is None:
            options = client_options({}, os.environ)[0]
            accept_baggage = ACCEPT in options.baggage if accept_baggage is None else accept_baggage
            signals = options.signals if signals is None else signals
        self._signals = signals_of(signals)
        self._is_unsigned = self._signals.marks.isdisjoint
        self._given = sink
        self._accept_baggage = accept_baggage
        if accept_baggage:
            givers.add("baggage")
        self._journal: Journal | None = None
        self._view: ResourceView | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sink={self._given!r})"

    @property
    def sink(self) -> Sink:
        """Where events go."""
        return self._given if self._given is not None else hook.client().sink

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Settle identity, and send the start of what can no longer become another (E1).

        Every span of the application passes here, so one that is none of ours is let go after a
        single look at its keys, and is told so: at its end only what was added is looked at.
        """
        try:
            try:
                bounded: Any = span._attributes  # noqa: SLF001  the public view is too slow here
                held: Any = bounded._dict  # noqa: SLF001  the same
                if not held or says_nothing(held):
                    bounded._flowmark_passed = len(held)  # noqa: SLF001  read in on_end
                    if not givers:
                        return
                    marked = False
                else:
                    marked = is_marked(held)
                    passed = not marked and self._is_unsigned(held)
                    bounded._flowmark_passed = len(held) if passed else -1  # noqa: SLF001
            except AttributeError:  # an SDK that keeps its attributes in another way
                marked = is_marked(span.attributes or ())
            context = _current() if parent_context is None else parent_context
            # Whoever gives an identity gives a run id; baggage is looked into where it is allowed.
            if marked or RUN_ID_KEY in context or self._accept_baggage:
                self._start(span, context)
        except InvalidUse:
            raise
        except Exception as error:  # noqa: BLE001  nothing of ours reaches the application
            self._defect("start", error)

    def on_end(self, span: ReadableSpan) -> None:
        """Record a finished span, if it is annotated."""
        try:
            try:
                bounded: Any = span._attributes  # noqa: SLF001  as in on_start
                held: Any = bounded._dict  # noqa: SLF001  as in on_start
                # Nothing removes an attribute but a limit, which counts: so many, the same ones.
                if len(held) == bounded._flowmark_passed and not bounded.dropped:  # noqa: SLF001
                    return
                dropped: int = bounded.dropped
            except AttributeError:  # as in on_start, or a span that it did not see
                held = span.attributes or ()
                dropped = getattr(getattr(span, "_attributes", None), "dropped", 1)
            # A span that lost attributes may be ours although no key of ours is left on it.
            if dropped or (
                not says_nothing(held) and (is_marked(held) or not self._is_unsigned(held))
            ):
                self._end(span)
        except InvalidUse:
            raise
        except Exception as error:  # noqa: BLE001  nothing of ours reaches the application
            self._defect("end", error)

    def force_flush(self, timeout_millis: int = FLUSH_MILLIS) -> bool:
        """False if anything recorded was not acknowledged, or not in time."""
        millis, fault = time_to_wait(timeout_millis, FLUSH_MILLIS, "timeout_millis")
        if fault:
            self._tell(names.DIAGNOSTIC_INVALID, f"{fault}; {millis:g} is used")
        return self._flush(millis / 1000)

    def shutdown(self) -> None:
        """Give what is still queued a last chance; whoever owns the sink closes it."""
        self._flush(_SHUTDOWN_SECONDS)

    def _start(self, span: Span, context: Context) -> None:
        held = held_by(span) or {}
        if names.ATTEMPT_GROUP_ID not in held or not takes_all(span):
            self._open(span, context)
            return
        missing = missing_identity(held, context, accept_baggage=self._accept_baggage)
        if missing:
            write(span, missing)
        journal = self._journal_now()
        key = span_key(span.context)
        if journal.has(key):
            return  # another processor of the same sink was first
        view = self._view_of(span)
        events = started_of(span, key, view)
        if events is None:
            self._open(span, context)
        elif journal.open(key, span, Opened(events.given(), *OPERATION_SETTLED)):
            journal.sink.put(events, view.attributes)

    def _open(self, span: Span, context: Context) -> None:
        """Open a span by the plain path."""
        attributes = attributes_of(span)
        limits = limits_of(span)
        doubtful: list[str] = []
        if limits != UNLIMITED:
            doubtful = mend(attributes, given_at_start(span.context.trace_id, context), limits)
        missing = missing_identity(attributes, context, accept_baggage=self._accept_baggage)
        if missing:
            attributes.update(missing)
            write(span, missing)
        kept = {key: value for key, value in attributes.items() if key in _KEPT}
        if not kept:
            return
        journal = self._journal_now()
        key = span_key(span.context)
        if journal.has(key):
            return  # another processor of the same sink was first
        view = self._view_of(span)
        starts: list[Envelope | Refused] = []
        opened = Opened(kept)
        if is_early(attributes):
            starts, opened = fold_start(span, attributes, kept, view)
        opened.doubtful = doubtful
        if journal.open(key, span, opened) and opened.sent:
            journal.sink.put(starts, view.attributes)

    def _end(self, span: ReadableSpan) -> None:
        journal = self._journal_now()
        key = span_key(span.context)
        if not journal.claim(key):
            return  # another processor of the same sink was first
        opened = journal.close(key)
        view = self._view_of(span)
        events = ended_of(span, key, opened, view)
        if events is not None:
            journal.settle(key, recorded=True)
            journal.sink.put(events, view.attributes)
            return
        recorded = False
        try:
            found = fold_end(span, opened, view, self._signals)
            recorded = found.recorded
        finally:
            journal.settle(key, recorded=recorded)
        if found.events:
            journal.sink.put(found.events, view.attributes)
        self._tell_of(found)

    def _journal_now(self) -> Journal:
        """The journal of the sink as it is now: the client may have been configured anew."""
        sink = self.sink
        journal = self._journal
        if journal is None or journal.sink is not sink:
            journal = self._journal = journal_of(sink)
        return journal

    def _view_of(self, span: ReadableSpan) -> ResourceView:
        view = self._view
        if view is None or view.resource is not span.resource:
            view = self._view = ResourceView(span.resource)
        return view

    def say(self, span: Span, values: Mapping[str, object]) -> None:
        """Keep what was set on an open span, since a limit may have cut it there."""
        try:
            self._journal_now().say(span_key(span.context), span, values)
        except Exception as error:  # noqa: BLE001  nothing of ours reaches the application
            self._defect("annotation", error)

    def _tell_of(self, found: Finished) -> None:
        """Name what changed too late, and what may have been cut before anybody could keep it."""
        code = names.DIAGNOSTIC_METADATA_CHANGED
        if found.changed:
            keys = ", ".join(found.changed)
            message = f"{keys}: changed after the start was sent; left out of the end"
            self._tell(code, message, found.event)
        if found.events and found.doubtful:  # two ids may be one
            message = (
                f"{', '.join(found.doubtful)}: may be cut to {found.limit} characters by the SDK's "
                "attribute limit, so that two ids are one; raise the limit, or set it at the start "
                "under FlowmarkSampler"
            )
            self._tell(code, message, found.events[-1].event_id)

    def _tell(self, code: str, message: str, event: str = "") -> None:
        """By the client, which may be strict, or to the sink."""
        if self._given is None:
            hook.tell(hook.client(), code, message, event)
        else:
            with suppress(Exception):  # a sink that breaks its promise
                self._given.diagnose(Diagnostic(code, message, event))

    def _defect(self, moment: str, error: Exception) -> None:
        """Say what should not have happened; if even that fails there is nobody to tell."""
        message = (
            f"{type(error).__name__} at the {moment} of a span, which is not recorded: {error}"
        )
        with suppress(Exception):
            self.sink.diagnose(Diagnostic(names.DIAGNOSTIC_INTERNAL, message))

    def _flush(self, seconds: float) -> bool:
        sink = self._given
        if sink is None and self._journal is not None:
            sink = self._journal.sink
        flush = getattr(sink, "try_flush", None)  # None: no sink yet, or one that holds nothing
        if flush is None:
            return True
        try:
            return bool(flush(seconds))
        except Exception as error:  # noqa: BLE001  nothing of ours reaches the application
            self._defect("flush", error)
            return False
