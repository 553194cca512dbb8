"""The Grafana dashboard as it is checked in: its panels, its queries, its variables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE: Final = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "flowmark.json"
DASHBOARD: Final[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
PANELS: Final[list[dict[str, Any]]] = DASHBOARD["panels"]
SHOWING: Final = [panel for panel in PANELS if panel["type"] != "row"]

_LABEL_VALUES: Final = re.compile(r"label_values\((.*), (\w+)\)")
_INTERVALS: Final = {"__range": "60s", "__rate_interval": "5s"}


class Asked(NamedTuple):
    """A query of a panel."""

    panel: str
    ref: str
    expr: str


class Variable(NamedTuple):
    """A variable: its values are those of a label of a metric."""

    name: str
    label: str
    metric: str


def _variable(given: Mapping[str, Any]) -> Variable:
    found = _LABEL_VALUES.fullmatch(given["query"]["query"])
    assert found, given["query"]
    return Variable(given["name"], found[2], found[1])


QUERIES: Final = [
    Asked(panel["title"], target["refId"], target["expr"])
    for panel in SHOWING
    for target in panel["targets"]
]
VARIABLES: Final = [
    _variable(each) for each in DASHBOARD["templating"]["list"] if each["type"] == "query"
]


def filled(expr: str, values: Mapping[str, str]) -> str:
    """A query with its variables filled in; one that has no value is a KeyError."""
    return re.sub(r"\$(\w+)", lambda found: (_INTERVALS | dict(values))[found[1]], expr)
