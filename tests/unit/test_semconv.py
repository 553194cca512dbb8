"""E6: the registry in ``semconv/``, ``names.py``, the rules and the documentation say the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest
import yaml
from pydantic import ValidationError

from flowmark_otel import names
from flowmark_otel.validate import CARRIED_BY
from flowmark_otel.validate.rules import (
    OBSERVED_RULES,
    RULES,
    BrokenRule,
    Check,
    rule_of,
)
from tools.attributes_page import PAGE, page
from tools.registry import FOLDER, Attribute, Event, load

REGISTRY: Final = load()
RESULT: Final = names.RUN_RESULT_PREFIX.rstrip(".")
EVENTS: Final = {*names.PART_OF_EVENT, names.ATTEMPT_OBSERVED}
METRICS: Final = tuple(
    dict.fromkeys((*names.METRICS, *names.SERVER_METRICS, *names.COLLECTOR_METRICS))
)
OURS: Final = (names.PREFIX, "failure.")
WRONG: Final[dict[str, Any]] = {"string": 1, "int": "1", "boolean": 1, "template[any]": [1]}
"""A value of another type, for each type; 1 is no bool and "1" no integer."""


def keys() -> set[str]:
    """Every attribute key of ``names.py``; of results the part before the application's key."""
    texts = {value for value in vars(names).values() if isinstance(value, str)}
    found = {text for text in texts if text.startswith(OURS) and not text.endswith(".")}
    return (found - EVENTS) | {RESULT}


def checks() -> Iterator[tuple[Attribute, Check]]:
    """Each attribute that there is a rule for, and what checks a value of it."""
    for attribute in REGISTRY.defined.values():
        if attribute.id in OBSERVED_RULES:
            yield attribute, OBSERVED_RULES[attribute.id]
        elif rule := rule_of(f"{RESULT}.imported" if attribute.id == RESULT else attribute.id):
            yield attribute, rule.check


def refused(check: Check, value: object) -> bool:
    """Whether a value breaks the rule."""
    try:
        check(value)
    except BrokenRule:
        return True
    return False


RULED: Final = [pytest.param(*each, id=each[0].id) for each in checks()]


def test_each_key_is_defined_once() -> None:
    """E6: a key that is added to ``names.py`` or to the registry alone is missed."""
    defined = [each.id for group in REGISTRY.attributes for each in group.attributes]
    assert sorted(defined) == sorted(keys())


def test_each_event_is_there() -> None:
    """E6: the events of ``names.py`` are those of the registry."""
    assert {event.name for event in REGISTRY.events} == EVENTS


@pytest.mark.parametrize("event", REGISTRY.events, ids=lambda event: event.name)
def test_an_event_carries_what_it_is_said_to(event: Event) -> None:
    """E6: the attributes of an event are those that ``validate`` has for it (contract, 2)."""
    part = names.PART_OF_EVENT.get(event.name)
    always = {names.EVENT_ID, names.EVENT_NAME, names.DEFAULTED}
    if part is None:
        operation = {names.OPERATION_NAME, names.OPERATION_ID}
        wanted = always | {*names.IDENTITY_KEYS, *operation, *OBSERVED_RULES}
    else:
        wanted = always | {key for key, rule in RULES.items() if rule.scope in CARRIED_BY[part]}
        wanted |= {names.DURATION_NS} if part.endswith("end") else set()
        wanted |= {RESULT} if part == names.PART_RUN_END else set()
    assert {each.ref for each in event.attributes} == wanted


def test_spans_carry_every_key_that_has_a_rule() -> None:
    """E6: what applications set is told of a span that is an operation or of one that is a run."""
    told = {each.ref for span in REGISTRY.spans for each in span.attributes}
    assert told == {*RULES, RESULT}


def test_each_metric_is_there() -> None:
    """E6: metrics have the name, unit, description and attributes of ``names.py``."""
    told = [
        (each.metric_name, each.unit, each.brief, tuple(one.ref for one in each.attributes))
        for each in REGISTRY.metrics
    ]
    assert told == [tuple(metric) for metric in METRICS]


def test_each_reference_leads_to_a_definition() -> None:
    """E6: nothing that carries an attribute names one that is not defined."""
    carried = [
        *(span.attributes for span in REGISTRY.spans),
        *(event.attributes for event in REGISTRY.events),
        *(metric.attributes for metric in REGISTRY.metrics),
    ]
    assert {each.ref for group in carried for each in group} <= set(REGISTRY.defined)


@pytest.mark.parametrize(("attribute", "check"), RULED)
def test_the_rule_is_the_one_that_holds(attribute: Attribute, check: Check) -> None:
    """E6: examples and values of a closed set are taken, other types and lengths are refused."""
    for value in (*attribute.examples, *(member.value for member in attribute.members)):
        assert check(value) == value
    kind = attribute.type if isinstance(attribute.type, str) else "string"
    assert refused(check, WRONG[kind])
    if attribute.members:
        assert refused(check, "another")
    if said := re.search(r"at most ([\d,]+) characters", attribute.note):
        limit = int(said[1].replace(",", ""))
        assert check("x" * limit)
        assert refused(check, "x" * (limit + 1))
    if attribute.note.startswith("Not blank"):
        assert refused(check, " ")
    if said := re.match(r"From (\d)( to 2\^53−1)?", attribute.note):
        assert refused(check, int(said[1]) - 1)
        assert check(2**53 - 1) == 2**53 - 1
        assert refused(check, 2**53) == bool(said[2])


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (names.VERDICT, get_args(names.Verdict)),
        (names.DELIVERY_STATE, names.DELIVERY_STATES),
        (names.ATTEMPT_STATUS, get_args(names.Ended)),
        (names.PIPELINE_OUTCOME, get_args(names.Ended)),
    ],
)
def test_closed_sets_are_those_of_the_code(key: str, values: tuple[str, ...]) -> None:
    """E6: the values of an attribute of a metric are those that the code knows."""
    told = [member.value for member in REGISTRY.defined[key].members]
    assert sorted(told) == sorted(values)


def test_the_page_is_written_from_the_registry() -> None:
    """E6: ``docs/attributes.md`` is what the registry says; ``make docs`` writes it anew."""
    assert PAGE.read_text(encoding="utf-8") == page(REGISTRY)


@pytest.mark.needs("weaver")
def test_weaver_takes_the_registry() -> None:
    """E6: OpenTelemetry's own tool resolves the registry and finds nothing against it."""
    command = ["weaver", "registry", "check", "--registry", str(FOLDER), "--future"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("slip", "named"),
    [
        ({"brief": None}, "brief"),
        ({"stability": "experimental"}, "stability"),
        ({"type": "text"}, "type"),
        ({"exmaples": ["x"]}, "exmaples"),
    ],
)
def test_a_slip_in_the_registry_is_found(slip: dict[str, Any], named: str, tmp_path: Path) -> None:
    """E6: what is not of the format is refused, by the name of the field."""
    for file in FOLDER.glob("*.yaml"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    file = tmp_path / "attributes.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    document["groups"][0]["attributes"][0].update(slip)
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(ValidationError, match=named):
        load(tmp_path)
