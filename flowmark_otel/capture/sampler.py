"""A sampler that records what carries our keys although its trace is not sampled (E2).

It has to be the outermost: inside a parent-based sampler it would not be asked for the children
of an unsampled parent. What is annotated only after the start of an unsampled span is lost: the
sampler sees what the span was created with.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from flowmark_otel import names
from flowmark_otel.capture.whole import note

_logger = logging.getLogger(__name__)
_GROUP: Final = "opentelemetry_traces_sampler"
_OWN: Final = "flowmark"
_BY_RATIO: Final = frozenset(("traceidratio", "parentbased_traceidratio"))


class FlowmarkSampler(Sampler):
    """Asks ``inner``, and records without sampling what it would drop of ours.

    The sampled flag stays off, so exporters and children see the decision of ``inner``. Identity
    alone does not count: it is stamped on whatever runs inside a workflow.

    ``notes``: whether spans have a length limit for values, so that what they are created with has
    to be kept before it is cut; known from the environment, and of a provider that is attached.
    """

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner
        self.notes = _is_limited()

    def __repr__(self) -> str:
        return self.get_description()

    def should_sample(  # noqa: PLR0917  the SDK's signature
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """The decision of ``inner``; a dropped span of ours is recorded only."""
        result = self.inner.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )
        if self.notes:
            note(trace_id, attributes if _is_ours(attributes) else None)
        if result.decision is not Decision.DROP or not _is_ours(attributes):
            return result
        kept = {**(attributes or {}), **(result.attributes or {})}
        return SamplingResult(Decision.RECORD_ONLY, kept, result.trace_state)

    def get_description(self) -> str:
        """The name of this sampler and, in braces, of the one it wraps."""
        return f"FlowmarkSampler{{{self.inner.get_description()}}}"


def sampler_from_name(argument: str | None = None) -> FlowmarkSampler:
    """The sampler of the entry points named ``flowmark``.

    ``argument``, from ``OTEL_TRACES_SAMPLER_ARG``: the name of the sampler to wrap, followed by
    ``=`` and its own argument where it takes one (``parentbased_traceidratio=0.25``); without it
    ``parentbased_always_on``. One that cannot be had is replaced by that, with a warning, as the
    SDK does.
    """
    if argument is None or not argument.strip():
        return FlowmarkSampler(DEFAULT_ON)
    try:
        inner = _named(argument)
    except Exception as error:  # noqa: BLE001  a sampler of whoever installed one
        kind = "" if isinstance(error, _NoSampler) else f"{type(error).__name__}: "
        _logger.warning(
            "OTEL_TRACES_SAMPLER_ARG: %.80r names no sampler to wrap, so sampling is "
            "parentbased_always_on: %s%.300s",
            argument,
            kind,
            error,
        )
        return FlowmarkSampler(DEFAULT_ON)
    return FlowmarkSampler(inner)


class _NoSampler(Exception):
    """What is wrong with a sampler's name or argument, and the mend."""


def _named(argument: str) -> Sampler:
    """The sampler that an argument names; raises what keeps it from being had."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and seldom needed

    name, _, rest = argument.partition("=")
    name = name.strip().lower()
    known = {each.name: each for each in entry_points(group=_GROUP) if each.name != _OWN}
    found = known.get(name)
    if found is None:
        msg = f"there is no {name[:40]!r}; set one of {', '.join(sorted(known))}"
        raise _NoSampler(msg)
    if name not in _BY_RATIO:
        inner: object = found.load()(rest or None)
    else:
        ratio = _ratio(rest)
        if ratio is None:
            msg = f"the ratio is {rest[:40]!r}; set {name}=0.25, or another from 0 to 1"
            raise _NoSampler(msg)
        inner = found.load()(ratio)
    if not isinstance(inner, Sampler):
        msg = f"{name!r} makes a {type(inner).__name__}; set the name of a sampler"
        raise _NoSampler(msg)
    return inner


def _ratio(text: str) -> float | None:
    try:
        ratio = float(text)
    except ValueError:
        return None
    return ratio if 0.0 <= ratio <= 1.0 else None


def _is_limited() -> bool:
    """Whether the environment limits the length of values; a provider refuses what is no limit."""
    try:
        return SpanLimits().max_span_attribute_length is not None
    except ValueError:
        return False


def _is_ours(attributes: object) -> bool:
    """Whether a span carries a key of ours beside identity; False for what is no mapping."""
    try:
        return isinstance(attributes, Mapping) and any(
            isinstance(key, str) and key.startswith("flowmark.") and key not in names.IDENTITY_KEYS
            for key in attributes
        )
    except Exception:  # noqa: BLE001  a mapping of the application's
        return False
