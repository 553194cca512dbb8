"""Redaction: what must not leave the process (contract, section 2; reliability, "secrets").

Pure and idempotent. It touches string results and error texts, and serves idempotency keys; ids,
names, attempt and retry fields are never changed, since a changed id is another id.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from flowmark_otel import names
from flowmark_otel.model import MAX_CODE, Value
from flowmark_otel.validate import clean_default
from flowmark_otel.validate.secrets import is_secret_name, redact_text

_SERVED: Final = re.compile(r"sha256:[0-9a-f]{16}")


def clean_error_type(value: object) -> tuple[str, bool]:
    """An ``error.type`` as it is carried, and whether characters were replaced; empty if none.

    It is no key of ours, so it is cut and cleaned, never a reason to refuse.
    """
    if not isinstance(value, str) or not value or value.isspace():
        return "", False
    return clean_default(redact_text(value), MAX_CODE)


def redact_result(key: str, value: Value) -> Value:
    """A result as it is served; ``key`` is the whole attribute key."""
    if not isinstance(value, str):
        return value
    if is_secret_name(key, len(names.RUN_RESULT_PREFIX)):
        return names.REDACTED
    return redact_text(value)


def is_redacted(key: str) -> bool:
    """Whether values of a key may leave the process otherwise than they were given."""
    return key in _REDACTED or key.startswith(names.RUN_RESULT_PREFIX)


_REDACTED: Final = frozenset((names.ERROR_CODE, names.ATTEMPT_IDEMPOTENCY_KEY))


def redacted(key: str, value: Value) -> Value:
    """A value that passed the rule of its key as it leaves the process."""
    if key == names.ERROR_CODE:
        return redact_text(str(value))
    if key == names.ATTEMPT_IDEMPOTENCY_KEY:
        return served_idempotency_key(str(value))
    if key.startswith(names.RUN_RESULT_PREFIX):
        return redact_result(key, value)
    return value


def served_idempotency_key(key: str) -> str:
    """The served form of an idempotency key; a served form is served as it is (B3)."""
    if _SERVED.fullmatch(key):
        return key
    return "sha256:" + hashlib.sha256(b"flowmark:" + key.encode()).hexdigest()[:16]
