"""The one table of requests: path, parameters, answer. Routes and the document are made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flowmark_otel.backend.api.parameters import (
    BUCKETS,
    EVIDENCE_FILTERS,
    KEY,
    PAGING,
    RUN_FILTERS,
    SINCE,
    TRACE,
    UNTIL,
    WORKFLOW,
    Parameter,
)
from flowmark_otel.backend.read import DEFAULT_LIMIT, EvidenceFilters, Reader, RunFilters
from flowmark_otel.backend.views import (
    EventView,
    EvidenceItem,
    GroupView,
    Ingest,
    OccurrenceView,
    OperationRow,
    Overview,
    Page,
    RunView,
)

PREFIX: Final = "/api/v1"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One request: its path below the prefix, what it takes, what it answers.

    ``answer`` blocks: it is given reader, project id and the values of the parameters.
    """

    path: str
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    view: Any
    answer: Callable[[Reader, int, Mapping[str, Any]], object]


def _runs(reader: Reader, project_id: int, given: Mapping[str, Any]) -> Page[RunView]:
    filters, paging = _split(given)
    return reader.runs(project_id, RunFilters(**filters), *paging)


def _run(reader: Reader, project_id: int, given: Mapping[str, Any]) -> RunView:
    return reader.run(project_id, given["key"])


def _occurrences(reader: Reader, project_id: int, given: Mapping[str, Any]) -> Page[OccurrenceView]:
    return reader.operations(project_id, given["key"], *_paging(given))


def _attempts(reader: Reader, project_id: int, given: Mapping[str, Any]) -> Page[GroupView]:
    return reader.attempts(project_id, given["key"], *_paging(given))


def _events(reader: Reader, project_id: int, given: Mapping[str, Any]) -> Page[EventView]:
    return reader.events(project_id, given["key"], *_paging(given))


def _operations(reader: Reader, project_id: int, given: Mapping[str, Any]) -> Page[OperationRow]:
    filters, paging = _split(given)
    return reader.operation_statistics(project_id, *paging, **filters)


def _overview(reader: Reader, project_id: int, given: Mapping[str, Any]) -> Overview:
    return reader.overview(project_id, **given)


def _evidence(reader: Reader, project_id: int, given: Mapping[str, Any]) -> Page[EvidenceItem]:
    filters, paging = _split(given)
    return reader.evidence(project_id, EvidenceFilters(**filters), *paging)


def _ingest(reader: Reader, project_id: int, given: Mapping[str, Any]) -> Ingest:
    del given  # takes nothing
    return reader.ingest(project_id)


def _trace(reader: Reader, project_id: int, given: Mapping[str, Any]) -> Page[RunView]:
    return reader.trace(project_id, given["trace_id"], *_paging(given))


def _paging(given: Mapping[str, Any]) -> tuple[int, str | None]:
    return given.get("limit", DEFAULT_LIMIT), given.get("cursor")


def _split(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[int, str | None]]:
    filters = {name: value for name, value in given.items() if name not in ("limit", "cursor")}
    return filters, _paging(given)


ENDPOINTS: Final = (
    Endpoint(
        "/runs",
        "runs",
        "Runs, the latest first arrival first.",
        (*RUN_FILTERS, *PAGING),
        Page[RunView],
        _runs,
    ),
    Endpoint("/runs/{key}", "run", "One run.", (KEY,), RunView, _run),
    Endpoint(
        "/runs/{key}/operations",
        "run_operations",
        "The occurrences of a run, by first arrival.",
        (KEY, *PAGING),
        Page[OccurrenceView],
        _occurrences,
    ),
    Endpoint(
        "/runs/{key}/attempts",
        "run_attempts",
        "The groups of a run with all their attempts, by first arrival.",
        (KEY, *PAGING),
        Page[GroupView],
        _attempts,
    ),
    Endpoint(
        "/runs/{key}/events",
        "run_events",
        "The evidence of a run in order of arrival, rejected events among it.",
        (KEY, *PAGING),
        Page[EventView],
        _events,
    ),
    Endpoint(
        "/operations",
        "operations",
        "Figures per operation name over the runs of a time, most time lost first.",
        (SINCE, UNTIL, WORKFLOW, *PAGING),
        Page[OperationRow],
        _operations,
    ),
    Endpoint(
        "/overview",
        "overview",
        "Figures of the runs of a time, over that time and per operation name.",
        (SINCE, UNTIL, BUCKETS),
        Overview,
        _overview,
    ),
    Endpoint(
        "/evidence",
        "evidence",
        "What is not known, and what was refused; of each kind the latest run first.",
        (*EVIDENCE_FILTERS, *PAGING),
        Page[EvidenceItem],
        _evidence,
    ),
    Endpoint(
        "/ingest",
        "ingest",
        "What arrived, from whom, and what holds it.",
        (),
        Ingest,
        _ingest,
    ),
    Endpoint(
        "/trace/{trace_id}",
        "trace",
        "The runs that events of a trace belong to.",
        (TRACE, *PAGING),
        Page[RunView],
        _trace,
    ),
)
