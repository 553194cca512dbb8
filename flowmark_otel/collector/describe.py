"""What would be built of a plan, for people and for programs; no secrets in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from flowmark_otel.collector.config.options import (
    FileExporter,
    FlowmarkConnector,
    FlowmarkExporter,
    OtlpReceiver,
    Policy,
    Remote,
)
from flowmark_otel.collector.plan import Acknowledge, Component, Plan
from flowmark_otel.names import REDACTED

_SECRETS: Final = frozenset({"headers", "token", "tokens"})
_ANSWERS: Final = {
    Acknowledge.END_TO_END: "senders get the backend's receipt",
    Acknowledge.ON_SPOOL: "senders get custody: written and synced here before they are answered",
}


def lines_of(plan: Plan) -> Iterator[str]:
    """A short tree: each pipeline, where its messages come from and where they go."""
    yield f"acknowledge {plan.acknowledge.value}: {_ANSWERS[plan.acknowledge]}"
    for pipeline in plan.pipelines.values():
        several = f" ({pipeline.trigger.value})" if len(pipeline.exporters) > 1 else ""
        yield f"pipeline {pipeline.id}{several}"
        for each in pipeline.receivers:
            receiver = plan.receivers.get(each)
            what = _receiver(receiver) if receiver is not None else "connector"
            yield f"  from {each}: {what}"
        for each in pipeline.exporters:
            node = plan.exporters.get(each) or plan.connectors[each]
            yield f"  to   {each}: {', '.join(_node(plan, node))}"
    if plan.telemetry is not None:
        yield f"telemetry http://{plan.telemetry}/metrics, /healthz, /readyz and /status"
    if plan.memory_limit is not None:
        yield f"memory limit {plan.memory_limit >> 20} MiB"
    if plan.unused:
        yield f"not used: {', '.join(plan.unused)}"


def document_of(plan: Plan) -> dict[str, Any]:
    """The whole plan, defaults written out; what is secret reads ``[redacted]``."""
    return {
        "acknowledge": plan.acknowledge.value,
        **{
            name: {each.id: {"type": each.type, **_options(each)} for each in held.values()}
            for name, held in (
                ("receivers", plan.receivers),
                ("connectors", plan.connectors),
                ("exporters", plan.exporters),
                ("extensions", plan.extensions),
            )
        },
        "pipelines": {
            each.id: {
                "receivers": list(each.receivers),
                "exporters": list(each.exporters),
                "trigger": each.trigger.value,
            }
            for each in plan.pipelines.values()
        },
        "telemetry": plan.telemetry,
        "memory_limit": plan.memory_limit,
        "log_level": plan.log_level,
        "unused": list(plan.unused),
    }


def _receiver(component: Component) -> str:
    options = component.options
    if not isinstance(options, OtlpReceiver):
        return component.type
    said = []
    for name, server in (("grpc", options.protocols.grpc), ("http", options.protocols.http)):
        if server is not None:
            extras = [
                *(["TLS"] if server.tls is not None else []),
                *([f"auth {server.auth.authenticator}"] if server.auth is not None else []),
            ]
            said.append(" ".join([name, server.endpoint, *extras]))
    return ", ".join(said)


def _node(plan: Plan, component: Component) -> Iterator[str]:
    options = component.options
    if isinstance(options, FlowmarkConnector):
        yield f"signals {options.signals}"
        targets = [each.id for each in plan.pipelines.values() if component.id in each.receivers]
        yield f"on to {' and '.join(targets)}"
    elif isinstance(options, Remote):
        yield options.url
    elif isinstance(options, FileExporter):
        yield str(options.path)
    if isinstance(options, Policy):
        route = f" to {options.errors}" if options.errors is not None else ""
        yield f"on_error {options.on_error}{route}"
        tries = options.retry.max_attempts if options.retry is not None else 1
        yield f"{tries} tries" if tries > 1 else "one try"
    if isinstance(options, FlowmarkExporter) and options.spool is not None:
        used = plan.acknowledge is Acknowledge.ON_SPOOL
        yield f"spool {options.spool.directory}{'' if used else ' (not used under end_to_end)'}"


def _options(component: Component) -> dict[str, Any]:
    return {
        key: _shown(key, each) for key, each in component.options.model_dump(mode="json").items()
    }


def _shown(key: str, value: Any) -> Any:  # noqa: ANN401  JSON of any shape
    if key in _SECRETS and value:
        return dict.fromkeys(value, REDACTED) if isinstance(value, dict) else REDACTED
    return value
