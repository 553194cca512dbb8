"""Where a span is in the trace viewer that ``--trace-url`` names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Viewer: TypeAlias = Callable[[str, str], str | None]
"""The address of a span in the configured trace viewer, from trace and span id in hex."""


def no_viewer(_trace_id: str, _span_id: str) -> None:
    """No trace viewer is configured."""
