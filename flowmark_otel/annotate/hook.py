"""How recording reaches the client without importing it: the client registers itself here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from opentelemetry.trace import Span, Tracer

from flowmark_otel.clock import Clock
from flowmark_otel.errors import InvalidUse
from flowmark_otel.model import Diagnostic, ObservedAttempt, Sink


class Client(Protocol):
    """What recording needs of the client; nothing here raises or waits."""

    @property
    def sink(self) -> Sink:
        """Where events of spans go that no processor of ours captures."""
        ...

    @property
    def resource(self) -> Mapping[str, object]:
        """The resource of those events: always the same object."""
        ...

    @property
    def clock(self) -> Clock:
        """Where start and end times come from."""
        ...

    @property
    def strict(self) -> bool:
        """Whether a diagnostic about the caller's own doing is raised."""
        ...

    @property
    def sends_baggage(self) -> bool:
        """Whether identity is written to baggage."""
        ...

    @property
    def on_attempt(self) -> Callable[[ObservedAttempt], object] | None:
        """What is told of each reported try (B8)."""
        ...

    def tracer(self) -> Tracer:
        """The tracer to record with, of the application's provider or of a private one."""
        ...

    def captured(self, span: Span) -> bool:
        """Whether a processor of ours records this span, so that nobody else may."""
        ...

    def say(self, span: Span, values: Mapping[str, object]) -> None:
        """What was set on a captured span, which a limit of the SDK may have cut there."""
        ...


class _Registry:
    """The one factory; ``client.py`` owns what it returns."""

    __slots__ = ("factory",)

    def __init__(self) -> None:
        self.factory: Callable[[], Client] | None = None


_registry = _Registry()


def register(factory: Callable[[], Client]) -> None:
    """Say how the client is had; asked at each use, so the factory keeps what it made."""
    _registry.factory = factory


def client() -> Client:
    """The client, configured from the environment at its first use."""
    factory = _registry.factory
    if factory is None:
        msg = "no client is registered; import flowmark_otel first"
        raise RuntimeError(msg)
    return factory()


def tell(client: Client, code: str, message: str, event_id: str = "") -> None:
    """Say what is wrong with the caller's use: a diagnostic, or an exception if strict."""
    if client.strict:
        raise InvalidUse(code, message)
    client.sink.diagnose(Diagnostic(code, message, event_id))
