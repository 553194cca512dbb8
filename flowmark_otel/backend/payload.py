"""What of a refused item is kept as evidence of its refusal: short, redacted, always JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from flowmark_otel import names
from flowmark_otel.fold.redact import redact_result, served_idempotency_key
from flowmark_otel.validate.secrets import redact_text

MAX_KEYS: Final = 64
MAX_TEXT: Final = 1024
_BAD: Final = re.compile("[\0\ud800-\udfff]")
_INT64: Final = range(-(2**63), 2**63)


def payload_of(attributes: Mapping[str, object]) -> dict[str, object]:
    """The ``flowmark.`` attributes as they came, at most 64, texts cut to 1,024 code points.

    What is no text, bool or number is named by its type; what redaction covers is redacted.
    """
    kept: dict[str, object] = {}
    for key, value in attributes.items():
        if key.startswith(names.PREFIX) and value is not None:
            if len(kept) == MAX_KEYS:
                break
            kept[_text(key)] = _shown(key, value)
    return kept


def _shown(key: str, value: object) -> object:
    if isinstance(value, str):
        text = _text(value)
        if key == names.ATTEMPT_IDEMPOTENCY_KEY:
            return served_idempotency_key(text)
        if key.startswith(names.RUN_RESULT_PREFIX):
            return redact_result(key, text)
        return redact_text(text)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value in _INT64 else "an integer beyond 64 bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return type(value).__name__


def _text(value: str) -> str:
    return _BAD.sub("\ufffd", value[:MAX_TEXT])
