"""E7: the alerts fire, and the dashboard shows, against a real Prometheus and programs that run.

The rules are those of ``deploy/prometheus``, their durations a hundredth: ``shortened``. Nothing is
written into Prometheus; what it knows it scraped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from tests.support.fleet import until
from tests.support.grafana import QUERIES, VARIABLES, Asked, filled
from tests.support.prometheus import SHORTER, shortened
from tests.support.watched import APPLICATION, BACKEND, COLLECTOR, RULES, Watched, watched

SECONDS: Final = 90.0
"""How long is waited at most; on an idle machine the last alert fires after twenty."""

pytestmark = [pytest.mark.needs("prometheus"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Programs with which nothing is wrong, as long as no other fixture was asked for."""
    with watched(tmp_path_factory.mktemp("watched")) as found:
        found.wait_for_history()
        yield found


def test_nothing_fires_while_all_is_well(well: Watched) -> None:
    """E7: with attempts that are completed and delivered no alert is pending, and none fired."""
    assert well.prometheus.query("flowmark:operations:rate5m > 1")
    assert well.prometheus.fired() == []
    assert well.prometheus.alerts() == {}


@pytest.fixture(scope="module")
def troubled(well: Watched) -> Watched:
    """The same after everything went wrong."""
    well.begin_trouble()
    return well


def blamed(found: Watched, alert: str) -> set[tuple[str, str]]:
    """Who an alert fired for: the job, and the operation or the instance."""
    return {
        (each["job"], each.get("flowmark_operation_name") or each["instance"])
        for each in found.prometheus.fired(alert)
    }


@pytest.mark.parametrize(
    ("alert", "culprits"),
    [
        ("FlowmarkRetryStorm", {(BACKEND, "push"), (APPLICATION, "push")}),
        ("FlowmarkAmplificationRising", {(BACKEND, "push"), (APPLICATION, "push")}),
        ("FlowmarkOperationsFailing", {(BACKEND, "pull"), (APPLICATION, "pull")}),
        ("FlowmarkUnacknowledged", {(APPLICATION, "stranger")}),
        ("FlowmarkDeadLetters", {(COLLECTOR, "spooling")}),
        ("FlowmarkSpoolAging", {(COLLECTOR, "spooling")}),
        ("FlowmarkNotReady", {(COLLECTOR, "spooling")}),
    ],
)
def test_each_alert_fires_for_who_is_to_blame(
    alert: str, culprits: set[tuple[str, str]], troubled: Watched
) -> None:
    """E7: what the rule is about happens to real programs, and Prometheus says so of them alone."""
    wanted = {(job, getattr(troubled, name, name)) for job, name in culprits}
    until(lambda: blamed(troubled, alert) >= wanted, SECONDS)
    assert blamed(troubled, alert) == wanted


def test_every_alert_is_among_them() -> None:
    """E7: no alert of the file is left out above."""
    [listed] = [
        mark.args[1]
        for mark in test_each_alert_fires_for_who_is_to_blame.pytestmark  # type: ignore[attr-defined]
        if mark.name == "parametrize"
    ]
    assert {each[0] for each in listed} == {
        rule["alert"]
        for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }


def test_only_durations_are_shortened() -> None:
    """E7: what Prometheus goes by here are the rules of the file but for their durations."""
    rules = yaml.safe_load(RULES.read_text("utf-8"))
    short = yaml.safe_load(shortened(RULES.read_text("utf-8")))
    bare = re.compile(r"(?<![a-z])\d+(?:ms|[mh])\b")
    assert bare.sub("", str(short)) == bare.sub("", str(rules))
    assert SHORTER == 100
    assert "[3000ms]" in str(short)
    assert not re.search(r"\[\d+[mh]\]", str(short))


@pytest.fixture(scope="module")
def chosen(troubled: Watched) -> dict[str, str]:
    """The variables of the dashboard as Grafana fills them in: all values that there are."""
    found: dict[str, str] = {}
    for name, label, metric in VARIABLES:
        asked = filled(metric, found)
        values = until(lambda at=(label, asked): troubled.prometheus.values(*at))  # type: ignore[misc]
        # A regular expression in a PromQL string, as Grafana escapes it.
        found[name] = "|".join(re.escape(value).replace("\\", r"\\") for value in values)
    return found


def test_the_variables_find_the_jobs(chosen: dict[str, str]) -> None:
    """E7: each part is told by a metric that it alone exports, whatever its job is called."""
    assert chosen == {
        "backend": BACKEND,
        "collector": COLLECTOR,
        "application": APPLICATION,
        "workflow": r"crm\\.sync",
        "operation": "pull|push",
    }


@pytest.mark.parametrize("asked", QUERIES, ids=lambda asked: f"{asked.panel}-{asked.ref}")
def test_each_query_of_the_dashboard_finds_something(
    asked: Asked, troubled: Watched, chosen: dict[str, str]
) -> None:
    """E7: a panel has series, and numbers in them, while the programs it is about run."""
    expr = filled(asked.expr, chosen)

    def numbers() -> list[str]:
        series = troubled.prometheus.query(expr)
        return [each["value"][1] for each in series if each["value"][1] != "NaN"]

    assert until(numbers)
