"""E7: the alert rules in ``deploy/prometheus`` fire when they should, on metrics that there are."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from flowmark_otel import names
from flowmark_otel.server.naming import prometheus_name

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES: Final[list[dict[str, Any]]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
ALERTS: Final = [rule["alert"] for rule in RULES if "alert" in rule]
METRICS: Final = (*names.METRICS, *names.SERVER_METRICS, *names.COLLECTOR_METRICS)

pytestmark = pytest.mark.needs("promtool")


def promtool(*arguments: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    """What promtool says in a folder."""
    return subprocess.run(
        ["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_rules_are_rules() -> None:
    """E7: Prometheus takes the file."""
    done = promtool("check", "rules", "alerts.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should() -> None:
    """E7: promtool's unit tests of the rules pass."""
    done = promtool("test", "rules", "alerts.test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_both_ways(alert: str) -> None:
    """E7: of each alert there is a case in which it fires, and one in which it does not."""
    tests = yaml.safe_load((FOLDER / "alerts.test.yaml").read_text("utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    fires = {bool(case["exp_alerts"]) for case in cases if case["alertname"] == alert}
    assert fires == {True, False}


def test_alerts_that_never_fire_are_found(tmp_path: Path) -> None:
    """E7: the unit tests fail, for each alert by name, where its rule says nothing any more."""
    document = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = f"({rule['expr']}) and vector(0) == 1"
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    (tmp_path / "alerts.test.yaml").write_bytes((FOLDER / "alerts.test.yaml").read_bytes())
    done = promtool("test", "rules", "alerts.test.yaml", folder=tmp_path)
    assert done.returncode == 1
    assert set(re.findall(r"alertname: (\w+)", done.stdout + done.stderr)) == set(ALERTS)


def test_every_metric_and_label_is_one_of_ours() -> None:
    """E7: the rules read metrics that ``names.py`` has, by labels that these have."""
    there = {prometheus_name(metric) for metric in METRICS}
    labels = {key.replace(".", "_") for metric in METRICS for key in metric.attributes}
    read = {word for rule in RULES for word in re.findall(r"\bflowmark_\w+", rule["expr"])}
    assert {word for word in read if word.removesuffix("_total") not in there | labels} == set()
