"""The identity of a span at its start, each key by itself: attribute, context, baggage.

Only what passes its rule is taken from context and baggage: what a stranger wrote there must not
make a span invalid that says nothing wrong itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry import baggage, context as otel
from opentelemetry.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext

from flowmark_otel import names
from flowmark_otel.annotate.context import RUN_ID_KEY, WORKFLOW_KEY
from flowmark_otel.validate import RULES, BrokenRule

_CONTEXT_KEYS: Final = {names.WORKFLOW_NAME: WORKFLOW_KEY, names.RUN_ID: RUN_ID_KEY}


def current_context() -> Callable[[], Context]:
    """What reads the current context, with as few frames as its keeper allows.

    Every span pays for this call. The usual keeper holds a context variable, which is read in C.
    """
    keeper: Any = getattr(otel, "_RUNTIME_CONTEXT", None)
    read: Callable[[], Context] = getattr(keeper, "get_current", otel.get_current)
    if type(keeper) is ContextVarsRuntimeContext:
        variable = getattr(keeper, "_current_context", None)
        read = getattr(variable, "get", read)
    return read


def missing_identity(
    attributes: Mapping[str, object], context: Context, *, accept_baggage: bool
) -> dict[str, str]:
    """The identity keys that a span lacks and its context, or the baggage in it, gives."""
    found: dict[str, str] = {}
    for key, context_key in _CONTEXT_KEYS.items():
        if attributes.get(key) is not None:
            continue
        value = _checked(key, context.get(context_key))
        if value is None and accept_baggage:
            value = _checked(key, baggage.get_baggage(key, context))
        if value is not None:
            found[key] = value
    return found


def _checked(key: str, value: object) -> str | None:
    """The value if its rule accepts it."""
    if value is None:
        return None
    try:
        return str(RULES[key].check(value))
    except BrokenRule:
        return None
