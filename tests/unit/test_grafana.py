"""E7: the Grafana dashboard is one that can be imported, reads, and asks for what there is."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any, Final

import pytest

from flowmark_otel import names
from flowmark_otel.listen.prometheus import label, prometheus_name
from tests.support.grafana import DASHBOARD, FILE, PANELS, QUERIES, SHOWING, VARIABLES, filled
from tools.grafana import dashboard

UNITS: Final = {"short", "percentunit", "s", "bytes", "suffix: /s"}
COLUMNS: Final = 24
SUFFIXES: Final = re.compile(r"_(?:total|bucket)$")


def test_the_file_is_what_its_source_says() -> None:
    """E7: the dashboard is written from ``tools/grafana``; ``make docs`` writes it anew."""
    assert FILE.read_text("utf-8") == dashboard.text()


def test_it_is_of_a_schema_that_grafana_reads() -> None:
    """E7: what Grafana asks of a dashboard is there, and it finds its data source by a variable."""
    assert DASHBOARD["schemaVersion"] == 39
    assert DASHBOARD["uid"]
    assert "id" not in DASHBOARD  # the number of one installation
    [source] = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "datasource"]
    told = {"type": "prometheus", "uid": f"${{{source['name']}}}"}
    asking = [*SHOWING, *(target for panel in SHOWING for target in panel["targets"])]
    assert [each for each in asking if each["datasource"] != told] == []


def test_ids_are_unique() -> None:
    """E7: no two panels have one id, no two queries of a panel one letter."""
    ids = [panel["id"] for panel in PANELS]
    assert sorted(set(ids)) == sorted(ids)
    for panel in SHOWING:
        letters = [target["refId"] for target in panel["targets"]]
        assert sorted(set(letters)) == sorted(letters)


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    """Whether two places on the grid share a cell."""
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


def test_panels_lie_beside_each_other() -> None:
    """E7: no panel lies on another, or outside of the columns."""
    places = [panel["gridPos"] for panel in PANELS]
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)


@pytest.mark.parametrize("panel", SHOWING, ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    """E7: title, a sentence or more, a unit; several series of a panel are told apart."""
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert not re.search(r"\brunning\b", panel["title"] + panel["description"])
    if panel["type"] == "timeseries":
        assert all(target["legendFormat"] != "__auto" for target in panel["targets"])


def test_titles_are_not_given_twice() -> None:
    """E7: a panel can be spoken of by its title."""
    titles = [panel["title"] for panel in PANELS]
    assert sorted(set(titles)) == sorted(titles)


def test_every_metric_and_label_is_one_of_ours() -> None:
    """E7: queries and names of series use metrics and labels that ``names.py`` has."""
    every = (*names.METRICS, *names.SERVER_METRICS, *names.COLLECTOR_METRICS)
    there = {prometheus_name(metric) for metric in every}
    there |= {label(key) for metric in every for key in metric.attributes}
    texts = [target["expr"] + target["legendFormat"] for p in SHOWING for target in p["targets"]]
    texts += [variable.metric for variable in VARIABLES]
    read = {word for text in texts for word in re.findall(r"\bflowmark_\w+", text)}
    assert {word for word in read if SUFFIXES.sub("", word) not in there} == set()


def test_every_metric_of_delivery_is_shown() -> None:
    """E7: what a client and a collector say of delivery is on it, all of it."""
    shown = " ".join(query.expr for query in QUERIES)
    client = (names.DELIVERY_METRIC, names.DIAGNOSTICS_METRIC, names.QUEUE_SIZE_METRIC)
    spool = (names.SPOOL_SIZE_METRIC, names.SPOOL_AGE_METRIC)
    left_out = {
        names.NODE_MESSAGES_METRIC,  # beside the items of the same node
        names.NODE_FAILED_METRIC,  # as the pipeline's outcome
        names.NODE_FOLDED_METRIC,  # what the exporter received
        names.READY_METRIC,  # of the nodes
        names.IN_FLIGHT_METRIC,
    }
    wanted = {*client, *spool, *names.COLLECTOR_METRICS} - left_out
    assert [each.name for each in wanted if prometheus_name(each) not in shown] == []


def test_variables_are_defined_before_they_are_used() -> None:
    """E7: each variable of a query has values, and each variable is used."""
    known: dict[str, str] = {}
    for variable in VARIABLES:
        filled(variable.metric, known)
        known[variable.name] = "x"
    for query in QUERIES:
        filled(query.expr, known)
    asked = " ".join(query.expr for query in QUERIES)
    assert [name for name in known if f"${name}" not in asked] == []
