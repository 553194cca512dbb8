"""The input of a dead letter without its secrets (reliability, "secrets"). Pure.

What is ours is redacted as folding redacts it, so a letter that is replayed has the ids and digests
that it would have had. Names and ids stay: a changed id is another id. What nobody can read as a
request is replayed by nobody, and is redacted as text.
"""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from typing import Any, Final

from flowmark_otel import names
from flowmark_otel.fold.redact import redacted
from flowmark_otel.validate import OBSERVED_RULES, BrokenRule, check_of, rule_of
from flowmark_otel.validate.secrets import is_secret_name, redact_text

_KEPT: Final = frozenset(
    ("name", "eventName", "key", "traceId", "spanId", "parentSpanId", "traceState", "schemaUrl")
)
"""Fields of OTLP/JSON that hold names and ids."""

_NUMBERS: Final = frozenset(("boolValue", "intValue", "doubleValue"))
_NAMES_OF_THE_SERVICE: Final = "service."


def without_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """An OTLP/JSON document, or what stands for an unreadable one; it is changed in place."""
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:  # no recursion: how deep it nests is the sender's choice
        name, holder = waiting.pop()
        if isinstance(holder, dict) and isinstance(holder.get("value"), dict):
            key = holder.get("key")
            if isinstance(key, str) and (safe := _attribute(key, holder["value"])) is not None:
                holder["value"] = safe
                continue
        for place, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            field = place if isinstance(place, str) else name
            if isinstance(value, str):
                holder[place] = _text(field, value)
            elif isinstance(value, dict | list):
                waiting.append((field, value))
    return document


def _attribute(key: str, value: dict[str, Any]) -> dict[str, Any] | None:
    """The AnyValue of an attribute where its key decides; None where each text in it does."""
    if key.startswith(names.PREFIX):
        return _ours(key, value)
    if key.startswith(_NAMES_OF_THE_SERVICE) or value.keys() <= _NUMBERS:
        return value
    return {"stringValue": names.REDACTED} if is_secret_name(key) else None


def _ours(key: str, value: dict[str, Any]) -> dict[str, Any] | None:
    """A value that is carried as folding redacts it; one that is not is a text like any other."""
    text, rule = value.get("stringValue"), rule_of(key)
    check = check_of(key, rule) if rule is not None else OBSERVED_RULES.get(key)
    if isinstance(text, str) and check is not None:
        with suppress(BrokenRule):
            return {**value, "stringValue": redacted(key, check(text))}
    secret = is_secret_name(key) and not value.keys() <= _NUMBERS
    return {"stringValue": names.REDACTED} if secret else None


def _text(field: str, value: str) -> str:
    if field in _KEPT:
        return value
    return _bytes(value) if field in (names.UNREAD, "bytesValue") else redact_text(value)


def _bytes(encoded: str) -> str:
    """Bytes in base64; what is none is a text."""
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return redact_text(encoded)
    text = raw.decode("latin-1")
    safe = redact_text(text)
    return encoded if safe == text else base64.b64encode(safe.encode("latin-1")).decode()
