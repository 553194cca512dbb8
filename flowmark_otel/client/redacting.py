"""``FLOWMARK_REDACT``: result keys whose text does not leave the process (contract, section 2).

It belongs to folding, before the digest: what passes here is not looked at before. Set it alike
wherever the same spans are folded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate
from typing import TYPE_CHECKING

from flowmark_otel import names
from flowmark_otel.model import Envelope, Refused, Value

if TYPE_CHECKING:
    from flowmark_otel.deliver import Delivery


def redacting(delivery: Delivery, globs: Sequence[str]) -> Delivery | RedactingSink:
    """The delivery itself where no keys are added to the built-in ones."""
    return RedactingSink(delivery, globs) if globs else delivery


class RedactingSink:
    """Hands everything on to a delivery, results under ``globs`` without their text.

    A glob is of a result key, without ``flowmark.run.result.``; case counts.
    """

    def __init__(self, delivery: Delivery, globs: Sequence[str]) -> None:
        self._delivery = delivery
        self._matches = re.compile("|".join(translate(glob) for glob in globs)).match
        self.diagnose = delivery.diagnose
        self.try_flush = delivery.try_flush

    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        """Take events of one resource."""
        self._delivery.put([self._redacted(event) for event in events], resource)

    def _redacted(self, event: Envelope | Refused) -> Envelope | Refused:
        if isinstance(event, Refused) or event.part != names.PART_RUN_END:
            return event
        found: dict[str, Value] = {
            key: names.REDACTED
            for key, value in event.attributes.items()
            if isinstance(value, str)
            and key.startswith(names.RUN_RESULT_PREFIX)
            and self._matches(key[len(names.RUN_RESULT_PREFIX) :])
        }
        return event._replace(attributes={**event.attributes, **found}) if found else event
