"""What a panel is, before it is written as Grafana has it."""

from __future__ import annotations

from typing import Final, NamedTuple

PER_SECOND: Final = "suffix: /s"
PLAIN: Final = "short"
RATIO: Final = "percentunit"
SECONDS: Final = "s"
BYTES: Final = "bytes"


class Query(NamedTuple):
    """A query and how its series are called; of a table the name of its column."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """A panel: ``kind`` as Grafana names it, ``width`` of 24 columns, ``red_from`` a threshold."""

    title: str
    says: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    red_from: float | None = None
    stacked: bool = False


class Row(NamedTuple):
    """A row of panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


def gauge(metric: str, job: str, legend: str, how: str = "sum", by: str = "instance") -> Query:
    """What a gauge is at, by these labels; ``job`` is the variable that has the jobs."""
    return Query(f'{how} by ({by}) ({metric}{{job=~"${job}"}})', legend)


def rate(metric: str, job: str, legend: str, by: str) -> Query:
    """What a counter rises by in a second, by these labels."""
    return Query(f'sum by ({by}) (rate({metric}{{job=~"${job}"}}[$__rate_interval]))', legend)
