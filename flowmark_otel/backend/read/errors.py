"""What a reader refuses: a question it cannot read, and a run that is not there for the asker."""

from __future__ import annotations

from flowmark_otel.errors import FlowmarkError


class BadParameter(FlowmarkError):
    """A parameter that cannot be used; the message names it, what was found and the mend."""


class NotFound(FlowmarkError):
    """No such run in this project; a foreign one reads the same (fault row 22)."""
