"""One configured client: where it records, and where what it recorded goes.

It joins the recording API, capture and delivery, and owns what they share: the options, the
delivery, and the provider that is recorded with while the application has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_ON

from flowmark_otel import names
from flowmark_otel.capture import FlowmarkSampler, attach, is_captured, say, sdk_provider
from flowmark_otel.client.redacting import redacting
from flowmark_otel.clock import Clock
from flowmark_otel.config.client import ACCEPT, SEND, ClientOptions
from flowmark_otel.model import Diagnostic, ObservedAttempt, Sink

if TYPE_CHECKING:
    from flowmark_otel.deliver import Delivery


OnDiagnostic: TypeAlias = Callable[[Diagnostic], object]
OnAttempt: TypeAlias = Callable[[ObservedAttempt], object]


_LIMITS: Final = SpanLimits(
    max_attributes=128,
    max_events=128,
    max_links=128,
    max_span_attributes=128,
    max_event_attributes=128,
    max_link_attributes=128,
    max_attribute_length=SpanLimits.UNSET,
    max_span_attribute_length=SpanLimits.UNSET,
)
"""Of the private provider, whose spans nobody else sees: the SDK's defaults, not the environment's,
which may cut, and may be no limits at all."""


class Wired(NamedTuple):
    """What spans are recorded with: a provider, its tracer, the resource of what it records."""

    provider: object
    tracer: trace.Tracer
    resource: Mapping[str, object]


class FlowmarkClient:
    """Implements ``annotate.hook.Client``; safe from any thread.

    ``provider``: the provider to record with; None is the global one, asked each time, since an
    application may set it late. A provider of the SDK gets our processor; while there is none, a
    private one records and the global one is left alone.
    """

    def __init__(
        self,
        options: ClientOptions,
        delivery: Delivery,
        clock: Clock,
        provider: trace.TracerProvider | None = None,
        on_attempt: OnAttempt | None = None,
    ) -> None:
        self.options = options
        self.delivery = delivery
        self.clock = clock
        self.on_attempt = on_attempt
        self.strict = options.strict
        self.sends_baggage = SEND in options.baggage
        from flowmark_otel.deliver.metrics import measuring  # noqa: PLC0415 - lazy, as delivery is

        self.sink: Sink = measuring(redacting(delivery, options.redact), delivery, delivery.spool)
        self._given = provider
        self._lock = threading.Lock()  # guards the making of what is made once
        self._private: TracerProvider | None = None
        self._wired: Wired | None = None

    @property
    def resource(self) -> Mapping[str, object]:
        """The resource of what is recorded without a captured span."""
        return self._wire().resource

    def tracer(self) -> trace.Tracer:
        """The tracer to record with."""
        wired, provider = self._wired, self._given
        if provider is None:
            provider = trace.get_tracer_provider()
        if wired is not None and wired.provider is provider:  # asked for each span that we start
            return wired.tracer
        return self._wire().tracer

    captured = staticmethod(is_captured)

    def say(self, span: trace.Span, values: Mapping[str, object]) -> None:
        """Keep uncut what was set on a captured span."""
        say(span, values)

    def attach(self, *, sampling: bool) -> None:
        """Record the spans of the application's provider, if it is one of the SDK."""
        provider = self._provider()
        if sdk_provider(provider) is not None:
            self._attach(provider, sampling=sampling)

    def report(self, code: str, faults: list[str]) -> None:
        """Report what is the matter, one diagnostic for each."""
        for fault in faults:
            self.sink.diagnose(Diagnostic(code, fault))

    def after_fork(self) -> None:
        """In a child: a lock that nobody holds; the delivery starts anew by itself."""
        self._lock = threading.Lock()

    def _attach(self, provider: trace.TracerProvider, *, sampling: bool) -> None:
        options = self.options
        accepts = ACCEPT in options.baggage
        attach(provider, accept_baggage=accepts, signals=options.signals, sampling=sampling)

    def _provider(self) -> trace.TracerProvider:
        if self._given is not None:
            return self._given
        found = trace.get_tracer_provider()
        return self._own_provider() if isinstance(found, trace.ProxyTracerProvider) else found

    def _own_provider(self) -> TracerProvider:
        with self._lock:
            found = self._private
            if found is None:
                # Samples as its parents do: what it starts may be named in outgoing requests.
                sampler = FlowmarkSampler(DEFAULT_ON)
                found = self._private = TracerProvider(
                    sampler=sampler, span_limits=_LIMITS, shutdown_on_exit=False
                )
            return found

    def _wire(self) -> Wired:
        provider = self._provider()
        wired = self._wired
        if wired is None or wired.provider is not provider:
            try:
                wired = self._wired_with(provider)
            except Exception as error:  # noqa: BLE001 - somebody else's provider, or none at all
                fault = f"tracer_provider: {type(provider).__name__} raised {type(error).__name__}"
                message = f"{fault}; recorded with a private one"
                self.sink.diagnose(Diagnostic(names.DIAGNOSTIC_CONFIGURATION, message))
                wired = self._wired_with(self._own_provider())._replace(provider=provider)
            self._wired = wired
        return wired

    def _wired_with(self, provider: trace.TracerProvider) -> Wired:
        self._attach(provider, sampling=False)
        tracer = provider.get_tracer(names.SCOPE, installed_version())
        return Wired(provider, tracer, _resource(provider))


def _resource(provider: object) -> Mapping[str, object]:
    found = sdk_provider(provider)
    resource = Resource.create() if found is None else found.resource
    return resource.attributes


def installed_version() -> str:
    """The version of this package; empty where it runs uninstalled."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow

    try:
        return version("flowmark-otel")
    except PackageNotFoundError:
        return ""
