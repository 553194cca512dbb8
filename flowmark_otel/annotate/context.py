"""What the OpenTelemetry context carries of ours: the run's identity and the current operation.

The context is the only owner of this state; there are no context variables beside it. The
processor reads the identity from here in ``on_start``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, cast

from opentelemetry import baggage, context as otel, trace
from opentelemetry.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext

from flowmark_otel import names

WORKFLOW_KEY: Final = otel.create_key("flowmark-workflow-name")
"""Context key of the workflow name; its value is a string."""

RUN_ID_KEY: Final = otel.create_key("flowmark-run-id")
"""Context key of the run id; its value is a string."""

OPERATION_KEY: Final = otel.create_key("flowmark-operation")
"""Context key of the operation whose block is being run; its value is its attempt handle."""

GIVEN_KEY: Final = otel.create_key("flowmark-given")
"""Context key under which a span that we start says what it is created with, before any limit.

It is in the context that the span is started with, and in no other.
"""

givers: Final[set[str]] = set()
"""What in this process gives spans an identity that they do not carry; empty, none can have one.

Added to by whoever does, never taken from: so a span that is none of ours, in a process without
workflows, is not asked for its context.
"""

_OWNER: Final = otel.create_key("flowmark-owner")
_BEFORE: Final = otel.create_key("flowmark-before")


def current_context() -> Callable[[], Context]:
    """What reads the current context, with as few frames as its keeper allows.

    Every span pays for this call. The usual keeper holds a context variable, which is read in C.
    """
    keeper: Any = getattr(otel, "_RUNTIME_CONTEXT", None)
    read: Callable[[], Context] = getattr(keeper, "get_current", otel.get_current)
    return getattr(_variable_of(keeper), "get", read)


def making_current() -> Callable[[Context], object]:
    """What makes a context the current one, with as few frames; what it gives is a token."""
    keeper: Any = getattr(otel, "_RUNTIME_CONTEXT", None)
    write: Callable[[Context], object] = getattr(keeper, "attach", otel.attach)
    return getattr(_variable_of(keeper), "set", write)


def _variable_of(keeper: object) -> ContextVar[Context] | None:
    if type(keeper) is ContextVarsRuntimeContext:
        return getattr(keeper, "_current_context", None)
    return None


class Identity(NamedTuple):
    """The identity that a context gives, each key by itself; None is not given."""

    workflow: str | None
    run_id: str | None


def identity_of(context: Context | None = None) -> Identity:
    """The identity in a context, the current one if None."""
    found = otel.get_current() if context is None else context
    return Identity(
        cast("str | None", found.get(WORKFLOW_KEY)), cast("str | None", found.get(RUN_ID_KEY))
    )


def with_identity(context: Context, workflow: str, run_id: str, *, send: bool) -> Context:
    """``context`` inside a run; with ``send`` its identity travels as baggage too."""
    givers.add("context")
    context = otel.set_value(WORKFLOW_KEY, workflow, context)
    context = otel.set_value(RUN_ID_KEY, run_id, context)
    if send:
        context = baggage.set_baggage(names.WORKFLOW_NAME, workflow, context)
        context = baggage.set_baggage(names.RUN_ID, run_id, context)
    return context


def enter(owner: object, span: trace.Span, inside: Context) -> None:
    """Make ``inside``, with ``span`` as its current span, the current context.

    The context itself remembers what stood before, so leaving needs no token: a token can only be
    used where it was made, and a generator may be left in another task or thread.
    """
    found = trace.set_span_in_context(span, inside)
    found = otel.set_value(_BEFORE, otel.get_current(), found)
    otel.attach(otel.set_value(_OWNER, owner, found))


def leave(owner: object) -> None:
    """Go back to what stood before ``enter``; where its context is not current, stay."""
    current = otel.get_current()
    if current.get(_OWNER) is owner:
        otel.attach(cast("Context", current[_BEFORE]))
