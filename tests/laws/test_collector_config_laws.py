"""Whatever a file holds, the collector's reader gives a plan or faults, and nothing else."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings, strategies as st

from flowmark_otel.collector.config.loading import plan_of
from flowmark_otel.collector.plan import Plan
from flowmark_otel.errors import ConfigurationError
from tests.support.collector_files import ENVIRONMENT, SAMPLE

KEYS = st.sampled_from(
    (
        *("receivers", "connectors", "exporters", "service", "pipelines", "traces", "otlp"),
        *("flowmark", "flowmark/fold", "errors/letters", "file/letters", "on_error", "errors"),
        *("retry", "failure_budget", "endpoint", "tls", "spool", "auth", "protocols", "headers"),
    )
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    KEYS,
    st.sampled_from(
        ["${env:FLOWMARK_API_KEY}", "${env:NONE}", "$$", "${", "route", "\ud800", "\0"]
    ),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(), inner, max_size=3)
    ),
    max_leaves=6,
)


def verdict(text: str) -> Plan | list[str]:
    """A plan, or at least one fault; every fault is one line that can be written out."""
    try:
        return plan_of(text, ENVIRONMENT)
    except ConfigurationError as error:
        faults = error.faults
    assert faults
    for fault in faults:
        assert fault.isprintable()
        fault.encode()
    return faults


def places(value: object) -> list[tuple[Any, Any]]:
    """Every container of a document with each of its keys."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, (dict, list)):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        for key in keys:
            found.append((value, key))
            found += places(value[key])
    return found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_file_that_was_changed_anywhere_is_a_plan_or_faults(data: st.DataObject) -> None:
    """Section 9: no mutation of a valid file raises anything but the error that lists faults."""
    document = yaml.safe_load(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        container, key = data.draw(st.sampled_from(places(document)))
        change = data.draw(st.sampled_from(["set", "take", "add"]))
        if change == "set":
            container[key] = data.draw(VALUES)
        elif change == "take":
            del container[key]
        elif isinstance(container, dict):
            container[data.draw(KEYS | st.text(max_size=8))] = data.draw(VALUES)
        else:
            container.append(data.draw(VALUES))
        if not places(document):
            break
    verdict(yaml.safe_dump(document))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(SAMPLE)), st.integers(0, 40), st.text(max_size=10))
def test_a_text_that_was_cut_or_overwritten_is_a_plan_or_faults(
    start: int, size: int, put: str
) -> None:
    """Section 9: nor does a text that is no YAML any more."""
    verdict(SAMPLE[:start] + put + SAMPLE[start + size :])


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_any_document_is_a_plan_or_faults(document: object) -> None:
    """Section 9: nor does a document that was never a configuration."""
    verdict(yaml.safe_dump(document))
