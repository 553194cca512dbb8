"""A large store, written row by row: what ingest would have stored, without its time.

A few runs go the real way, into a store of their own; their rows are then copied under other ids,
names and times. What is derived of them is folded by the summariser.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from flowmark_otel import names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import Arrival, Batch, Store, open_store, schema
from flowmark_otel.backend.summary.spans import DAY
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Sender, Span, run_key

SPANS = 10  # of a run; two events each
RUN = "run-name-00000000"
GROUP = "batch-00000000"
MISSING = "gone-00000000"
WORKFLOWS = ("crm.sync", "booking.confirm", "invoice.send", "stock.import", "mail.out")
RARE = ("failed", "open", "conflict", "gap", "unresolved", "many", "code")
"""One run in 49 is of each of these kinds: a page of them is full in the small store too."""

_TABLES = (schema.runs, schema.events, schema.occurrences, schema.rejections)


class Template(NamedTuple):
    """The rows of one run, by table."""

    runs: Sequence[tuple[Any, ...]]
    events: Sequence[tuple[Any, ...]]
    occurrences: Sequence[tuple[Any, ...]]
    rejections: Sequence[tuple[Any, ...]]


def fill(path: Path, events: int, days: int, until: int) -> None:
    """Make a store on SQLite of about so many events; ``copying`` makes one on PostgreSQL of it.

    Their runs are received evenly over days before a time in epoch nanoseconds.
    """
    runs = events // (2 * SPANS)
    with tempfile.TemporaryDirectory() as folder:
        templates = _templates(Path(folder) / "templates.db")
    store = open_store(f"sqlite:///{path}")
    Keys(store).ensure_project("default")
    store.close()
    _insert(path, _rows(_kinds(templates, runs), until - days * DAY, days * DAY // runs))
    store = open_store(f"sqlite:///{path}")
    fold_all(store)
    store.close()


def _templates(path: Path) -> dict[str, Template]:
    """A run of each shape, stored the real way."""
    store = open_store(f"sqlite:///{path}")
    project = Keys(store).ensure_project("default")
    shapes = ("plain", "retried", *RARE)
    templates = {}
    for index, shape in enumerate(shapes):
        _send(store, project, index, shape)
    with sqlite3.connect(path) as connection:
        for shape, run in zip(shapes, _all(connection, "runs", "id"), strict=True):
            templates[shape] = _template(connection, run)
    connection.close()
    store.close()
    return templates


def _kinds(templates: dict[str, Template], runs: int) -> Iterator[tuple[int, Template]]:
    for run in range(runs):
        place = run % (7 * len(RARE))
        shape = "retried" if place % 3 == 0 else "plain"
        if place % 7 == 5:
            shape = RARE[place // 7 % len(RARE)]
        yield run, templates[shape]


def _send(store: Store, project: int, index: int, shape: str) -> None:
    sender = Sender(user_agent="bench/1", service_name="crm-worker", service_version="1.2.3")
    events = [event for one in _spans(index, shape) for event in fold_span(one)]
    if shape == "open":
        del events[-3]  # the end of the last operation
    arrivals = [Arrival(item, sender, event) for item, event in enumerate(events)]
    store.submit(Batch(project, names.ORIGIN_SERVER, arrivals)).result()


def _spans(index: int, shape: str) -> Iterator[Span]:
    identity = {names.WORKFLOW_NAME: WORKFLOWS[0], names.RUN_ID: RUN[:-1] + str(index)}
    for number in range(SPANS - 1):
        attempts = {"plain": 1, "many": 9}.get(shape, 2)
        given: dict[str, Any] = {
            **identity,
            names.OPERATION_NAME: f"step-{number // 3}",
            names.ATTEMPT_GROUP_ID: f"{GROUP}-{number // attempts}",
            names.ATTEMPT_NUMBER: number % attempts + 1,
        }
        last = number == SPANS - 2
        failed = number % attempts < attempts - 1 and not last
        if failed:
            given[names.ERROR_CODE] = "E_RARE" if shape == "code" else f"E_{number % 3}"
        if last:
            given[names.ATTEMPT_GROUP_ID] = f"{GROUP}-last"
            given[names.ATTEMPT_NUMBER] = 3 if shape == "gap" else 1
            failed = shape == "failed"
            if shape == "conflict":
                given[names.ATTEMPT_GROUP_ID] = f"{GROUP}-0"
                given[names.OPERATION_NAME] = "step-0"
        yield _span(index, number, given, failed=failed)
    given = {**identity, names.RUN_OUTCOME: "complete"}
    if shape == "unresolved":
        given[names.RETRY_OF_WORKFLOW_NAME] = WORKFLOWS[0]
        given[names.RETRY_OF_RUN_ID] = MISSING
    yield _span(index, SPANS, given, failed=False)


def _span(index: int, number: int, given: dict[str, Any], *, failed: bool) -> Span:
    begin = 1_796_000_000_000_000_000 + number * 1_000_000
    trace_id = (index + 1).to_bytes(16, "big")
    span_id = (number + 1).to_bytes(8, "big")
    return Span(trace_id, span_id, "POST", begin, begin + 500_000, failed, given)


def _all(connection: sqlite3.Connection, table: str, column: str) -> list[int]:
    rows = connection.execute(f"SELECT {column} FROM {table} ORDER BY {column}")  # noqa: S608  own names
    return [row[0] for row in rows]


def _template(connection: sqlite3.Connection, run: int) -> Template:
    def rows(table: str, column: str) -> list[tuple[Any, ...]]:
        found = f"SELECT * FROM {table} WHERE {column} = ?"  # noqa: S608  own names
        return connection.execute(found, (run,)).fetchall()

    return Template(
        rows("runs", "id"),
        rows("events", "run"),
        rows("occurrences", "run"),
        rows("rejections", "run"),
    )


Rows: TypeAlias = Iterator[list[tuple[list[Any], ...]]]
"""Pieces of some thousand runs; of each run its rows, table by table."""


def _rows(wanted: Iterator[tuple[int, Template]], begin: int, step: int) -> Rows:
    copier = _Copier(begin, step)
    while some := list(islice(wanted, 2000)):
        yield [copier.rows(run, template) for run, template in some]


def _insert(path: Path, rows: Rows) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous = OFF", "journal_mode = MEMORY", "cache_size = -1000000"):
        connection.execute(f"PRAGMA {pragma}")
    for some in rows:
        connection.execute("BEGIN")
        for index, table in enumerate(_TABLES):
            marks = ", ".join("?" * len(table.columns))
            connection.executemany(
                f"INSERT INTO {table.name} VALUES ({marks})",  # noqa: S608  own names
                (row for each in some for row in each[index]),
            )
        connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


class _Copier:
    """Gives the rows of templates other ids, names and times."""

    def __init__(self, begin: int, step: int) -> None:
        self._begin, self._step = begin, step
        self._event = self._rejection = 0

    def rows(self, run: int, template: Template) -> tuple[list[Any], ...]:
        received_at = self._begin + run * self._step
        workflow = WORKFLOWS[run % len(WORKFLOWS)]
        (old,) = ({**_named(schema.runs, row)} for row in template.runs)
        names_ = {
            old["run_id"]: f"run-name-{run:08d}",
            GROUP: f"batch-{run:08d}",
            MISSING: f"gone-{run:08d}",
        }
        events = {}
        copied = []
        for row in template.events:
            self._event += 1
            new = _named(schema.events, row)
            events[new["id"]] = self._event
            new |= {"id": self._event, "trace_id": run.to_bytes(16, "big"), "run": run + 1}
            new |= {"received_at": received_at}
            new["attributes"] = _in_json(new["attributes"], names_, old["workflow"], workflow)
            copied.append(tuple(new.values()))
        occurrences = []
        for row in template.occurrences:
            new = _named(schema.occurrences, row)
            new |= {"run": run + 1, "group_id": _replaced(new["group_id"], names_)}
            new["fields"] = _replaced(new["fields"], names_)
            new |= {key: events.get(new[key]) for key in ("start_event", "end_event")}
            occurrences.append(tuple(new.values()))
        rejections = []
        for row in template.rejections:
            self._rejection += 1
            new = _named(schema.rejections, row)
            new |= {"id": self._rejection, "run": run + 1, "received_at": received_at}
            new |= {"event_id": f"{new['event_id']}-{run}", "trace_id": run.to_bytes(16, "big")}
            new["group_id"] = _replaced(new["group_id"], names_)
            new["attributes"] = _in_json(new["attributes"], names_, old["workflow"], workflow)
            rejections.append(tuple(new.values()))
        old |= {"id": run + 1, "workflow": workflow, "run_id": names_[old["run_id"]]}
        old |= {"first_received_at": received_at, "last_received_at": received_at}
        old["key"] = run_key(old["project_id"], old["origin"], workflow, old["run_id"])
        old |= {key: events.get(old[key]) for key in ("start_event", "end_event", "fields_from")}
        if old["retry_of_key"] is not None:
            old["retry_of_run_id"] = names_[MISSING]
            target = (old["project_id"], old["origin"], old["retry_of_workflow"], names_[MISSING])
            old["retry_of_key"] = run_key(*target)
        return [tuple(old.values())], copied, occurrences, rejections


def _named(table: Any, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column.name: value for column, value in zip(table.columns, row, strict=True)}


def _replaced(text: str | None, names_: dict[str, str]) -> str | None:
    if text is not None:
        for old, new in names_.items():
            text = text.replace(old, new)
    return text


def _in_json(text: bytes, names_: dict[str, str], old: str, new: str) -> bytes:
    for one, other in names_.items():
        text = text.replace(one.encode(), other.encode())
    return text.replace(old.encode(), new.encode())
