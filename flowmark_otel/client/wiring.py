"""What is given to ``configure`` and is no setting: objects of the application's, checked first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from opentelemetry import trace

from flowmark_otel.client.core import OnAttempt, OnDiagnostic
from flowmark_otel.clock import Clock

if TYPE_CHECKING:
    from flowmark_otel.deliver import Transport


class Wiring(NamedTuple):
    """The objects to wire the client with; None is what it has of its own."""

    tracer_provider: trace.TracerProvider | None = None
    on_diagnostic: OnDiagnostic | None = None
    on_attempt: OnAttempt | None = None
    transport: Transport | None = None
    clock: Clock | None = None


_WANTED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "tracer_provider": ("a tracer provider", ("get_tracer",)),
    "on_diagnostic": ("a function", ("__call__",)),
    "on_attempt": ("a function", ("__call__",)),
    "transport": ("a transport", ("send", "status", "after_fork", "close")),
    "clock": ("a clock", ("now_ns", "monotonic")),
}


def checked(wiring: Wiring) -> tuple[Wiring, list[str]]:
    """The wiring without what cannot be what it is given as, and a fault for each of that."""
    faults = []
    for field, (what, methods) in _WANTED.items():
        given: object = getattr(wiring, field)
        if given is not None and not all(_has(given, method) for method in methods):
            faults.append(f"{field}: is a {type(given).__name__}; set {what}")
            wiring = wiring._replace(**{field: None})
    return wiring, faults


def _has(given: object, method: str) -> bool:
    try:
        return callable(getattr(given, method, None))
    except Exception:  # noqa: BLE001 - an object that cannot say what it has
        return False
