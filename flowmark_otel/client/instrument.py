"""What ``opentelemetry-instrument`` finds by entry point (D2, contract, section 6)."""

from __future__ import annotations

import logging
import os

from flowmark_otel.client import lifecycle
from flowmark_otel.config.client import configured

_log = logging.getLogger("flowmark_otel")


def pre_instrument() -> None:
    """Record the spans of the provider that was just set up, if the environment asks for it.

    It runs before any tracer exists, which is when a sampler can still be wrapped. Whatever goes
    wrong is logged: an exception here would leave the application without its instrumentation.
    """
    try:
        if configured(os.environ):
            lifecycle.current().attach(sampling=True)
    except Exception:  # noqa: BLE001 - logged; raising would abort the rest of the set-up
        _log.exception("flowmark could not be set up; nothing is recorded by it")
