"""The identity of a span at its start, each key by itself: attribute, context, baggage.

Only what passes its rule is taken from context and baggage: what a stranger wrote there must not
make a span invalid that says nothing wrong itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry import baggage
from opentelemetry.context import Context

from flowmark_otel import names
from flowmark_otel.annotate.context import RUN_ID_KEY, WORKFLOW_KEY
from flowmark_otel.validate import RULES, BrokenRule

_CONTEXT_KEYS: Final = {names.WORKFLOW_NAME: WORKFLOW_KEY, names.RUN_ID: RUN_ID_KEY}


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
