"""``deploy/grafana/flowmark.json`` from its rows; run as a program it is written anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from tools.grafana import applications, attempts, backend, collector
from tools.grafana.model import Panel, Query

FILE: Final = Path(__file__).parents[2] / "deploy" / "grafana" / "flowmark.json"
ROWS: Final = (attempts.ROW, backend.ROW, collector.ROW, applications.ROW)
COLUMNS: Final = 24

Json: TypeAlias = dict[str, Any]

_SCHEMA: Final = 39  # Grafana 11; newer ones bring it up, and 10 shows it as well
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_HEIGHTS: Final = {"stat": 5, "timeseries": 8, "table": 10}

_VARIABLES: Final = (
    ("backend", "Backend", "label_values(flowmark_server_workers, job)"),
    ("collector", "Collector", "label_values(flowmark_collector_messages_total, job)"),
    ("application", "Application", "label_values(flowmark_delivery_events, job)"),
    (
        "workflow",
        "Workflow",
        'label_values(flowmark_operations_total{job=~"$backend"}, flowmark_workflow_name)',
    ),
    (
        "operation",
        "Operation",
        (
            'label_values(flowmark_operations_total{job=~"$backend",'
            'flowmark_workflow_name=~"$workflow"}, flowmark_operation_name)'
        ),
    ),
)
"""Names, labels and queries; each of the first three is a metric that no other part exports."""


def dashboard() -> Json:
    """The whole of it, in Grafana's JSON model."""
    return {
        "uid": "flowmark-otel",
        "title": "Flowmark: attempts and retries",
        "description": (
            "What applications tried again, what came of it, and whether all of it was recorded."
            " Made for the metrics of flowmark-otel serve --metrics, of flowmark-otel collect and"
            " of the Python client."
        ),
        "tags": ["flowmark", "opentelemetry", "retries"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_source(), *map(_variable, *zip(*_VARIABLES, strict=True))]},
        "panels": list(_panels()),
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=2) + "\n"


def _source() -> Json:
    return {
        "name": "source",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
    }


def _variable(name: str, label: str, query: str) -> Json:
    """A choice of values, all of them at first; a label that has none reads as any."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "values"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _panels() -> Iterator[Json]:
    """Rows and panels from left to right, ids in the order of the page."""
    number = top = 0
    for row in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        }
        top += 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            number += 1
            size = {"w": panel.width, "h": _HEIGHTS[panel.kind]}
            yield _panel(panel, number, {"x": left, "y": top, **size})
            left, height = left + panel.width, max(height, size["h"])
        top += height


def _panel(panel: Panel, number: int, place: Json) -> Json:
    made: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [_target(panel, *each) for each in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
    }
    if panel.kind == "table":
        made["transformations"] = _as_one_table(panel.queries)
    return made


def _target(panel: Panel, at: int, query: Query) -> Json:
    instant = panel.kind != "timeseries"
    return {
        "refId": _ref(at),
        "datasource": _SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": instant,
        "range": not instant,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _ref(at: int) -> str:
    return chr(ord("A") + at)


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    made: Json = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        made |= {"min": 0, "color": {"mode": "palette-classic"}}
        made["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 20 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "off" if panel.red_from is None else "dashed"},
            "showPoints": "never",
        }
    elif panel.kind == "stat":
        made["color"] = {"mode": "thresholds"}
    return made


_OPTIONS: Final[dict[str, Json]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value",
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}


def _as_one_table(queries: tuple[Query, ...]) -> list[Json]:
    """One line for each workflow and operation, one column for each query."""
    columns = {f"Value #{_ref(at)}": each.legend for at, each in enumerate(queries)}
    named = {"flowmark_workflow_name": "Workflow", "flowmark_operation_name": "Operation"}
    order = {name: at for at, name in enumerate((*named, *columns))}
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "indexByName": order,
                "renameByName": {**named, **columns},
            },
        },
    ]


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text(), encoding="utf-8")
