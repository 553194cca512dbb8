"""Which span a retried run was, so that the retry can link to it.

A reference names a run by workflow and run id; a span link needs a span context. It is known for
the latest runs started in this process; for any other run there is no link, and the reference
stands in the attributes alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from opentelemetry.trace import Link, SpanContext

from flowmark_otel import names
from flowmark_otel.model import RunRef

KEPT: Final = 1024
"""Runs remembered, the latest ones."""


class Runs:
    """Span contexts by run, the latest ``kept``; any thread may call."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._contexts: OrderedDict[RunRef, SpanContext] = OrderedDict()

    def remember(self, run: RunRef, context: SpanContext) -> None:
        """Keep the context of a run that started; a continuation takes the place of the first."""
        if not context.is_valid:
            return
        with self._lock:
            self._contexts[run] = context
            self._contexts.move_to_end(run)
            if len(self._contexts) > self._kept:
                self._contexts.popitem(last=False)

    def after_fork(self) -> None:
        """In a child: a lock that nobody holds."""
        self._lock = threading.Lock()

    def link(self, run: RunRef) -> list[Link]:
        """The link to a run, which says why it is there; empty if its span is not known."""
        with self._lock:
            context = self._contexts.get(run)
        if context is None:
            return []
        reference = {
            names.RETRY_OF_WORKFLOW_NAME: run.workflow,
            names.RETRY_OF_RUN_ID: run.run_id,
        }
        return [Link(context, reference)]


started: Final = Runs()
"""The runs of this process."""
