"""What ``opentelemetry-instrument`` finds by entry point (D2, contract, section 6)."""

from __future__ import annotations

import functools
import logging
import os

from opentelemetry import trace

from flowmark_otel.client import lifecycle
from flowmark_otel.config.client import configured

_log = logging.getLogger("flowmark_otel")


def pre_instrument() -> None:
    """Record the spans of the provider that was just set up, if the environment asks for it.

    It runs before any tracer exists, which is when a sampler can still be wrapped. Where nothing
    was set up, the application will, or a vendor's ``configure``: that provider is recorded from
    the moment it is set. Whatever goes wrong is logged: an exception here would leave the
    application without its instrumentation.
    """
    if not configured(os.environ):
        return
    _attach()
    try:
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            _attach_when_set()
    except Exception:  # noqa: BLE001 - logged; raising would abort the rest of the set-up
        _log.exception("flowmark could not be set up; nothing is recorded by it")


def _attach() -> None:
    try:
        lifecycle.current().attach(sampling=True)
    except Exception:  # noqa: BLE001 - logged; as above
        _log.exception("flowmark could not be set up; nothing is recorded by it")


def _attach_when_set() -> None:
    """Attach to the global provider as soon as there is one."""
    stock = trace.set_tracer_provider

    @functools.wraps(stock)
    def set_tracer_provider(tracer_provider: trace.TracerProvider) -> None:
        stock(tracer_provider)
        _attach()  # to the one that is set by now, whoever was first

    trace.set_tracer_provider = set_tracer_provider
