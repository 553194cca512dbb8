"""A store as an earlier version left it: made by that revision's script, filled by its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, MetaData, Table, text

from flowmark_otel import names
from flowmark_otel.backend.store import database_of, migrate
from flowmark_otel.model import run_key

PROJECT: Final = 1
OTHER: Final = 2
WORDS: Final = "crm sync push g"
RECEIVED: Final = 1_700_000_000_000_000_000
EVENTS: Final = 5
GROUPS: Final = 2
ATTEMPTS: Final = 3
BACKEND_ID: Final = "as-it-was"


def make(url: str, revision: str) -> None:
    """Make a store at a revision, with an id and a project, and fill it as ``_fill`` says."""
    made = database_of(url)
    made.create()
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).with_name("migrations")))
    opened = made.writing()
    with opened.connect() as connection, connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        tables = MetaData()
        tables.reflect(connection)  # as they were, whatever they are by now
        _fill(connection, tables.tables)
    opened.dispose()


def summarise(url: str) -> None:
    """Add to a store of revision 0003 to 0005 what its version kept of two projects' runs.

    A second project has a run of the same names, which stands among those of the first.
    """
    opened = database_of(url).writing()
    with opened.connect() as connection, connection.begin():
        tables = MetaData()
        tables.reflect(connection, only=("projects", "runs", "occurrences", "summaries"))
        added = {name: table.insert() for name, table in tables.tables.items()}
        connection.execute(added["projects"].values(id=OTHER, name="o", created_at=RECEIVED))
        for run, project in ((2, OTHER), (3, PROJECT)):
            named = {"origin": "server", "workflow": "crm.sync"}
            connection.execute(
                added["runs"].values(
                    id=run,
                    key=run_key(project, names.ORIGIN_SERVER, "crm.sync", f"r{run}"),
                    project_id=project,
                    run_id=f"r{run}",
                    first_received_at=RECEIVED,
                    last_received_at=RECEIVED,
                    **named,
                )
            )
            connection.execute(
                added["occurrences"].values(
                    run=run,
                    operation_id="op-1",
                    operation="push",
                    group_id="g",
                    number=1,
                    fields="{}",
                    status="open",
                    start_event=run,
                )
            )
        for run, project in ((1, PROJECT), (2, OTHER), (3, PROJECT)):
            connection.execute(
                added["summaries"].values(
                    run=run,
                    project_id=project,
                    origin="server",
                    workflow="crm.sync",
                    first_received_at=RECEIVED,
                    most_attempts=1,
                    terms=b"[]",
                    tallies=b"[]",
                    body=WORDS,
                )
            )
            connection.execute(text(_WORDS[connection.dialect.name]), {"run": run, "body": WORDS})
    opened.dispose()


_WORDS: Final = {
    "sqlite": "INSERT INTO search (rowid, body) VALUES (:run, :body)",
    "postgresql": "INSERT INTO search (run, body) VALUES (:run, to_tsvector('simple', :body))",
}


def _fill(connection: Connection, tables: Any) -> None:
    """One run with three attempts of two groups, five events, a sender and a rejection."""

    def add(table: str, **values: object) -> None:
        found: Table = tables[table]
        connection.execute(found.insert().values(values))

    of_project = {"project_id": PROJECT}
    add("meta", name="backend_id", value=BACKEND_ID)
    add("projects", id=PROJECT, name="default", created_at=RECEIVED)
    named = {"service_name": "crm", "service_version": "", "service_instance_id": ""}
    add("senders", id=1, user_agent="ua/1", **of_project, **named)
    add(
        "runs",
        id=1,
        key=run_key(PROJECT, names.ORIGIN_SERVER, "crm.sync", "r1"),
        origin="server",
        workflow="crm.sync",
        run_id="r1",
        first_received_at=RECEIVED,
        last_received_at=RECEIVED,
        **of_project,
    )
    for number in range(1, EVENTS + 1):
        add(
            "events",
            id=number,
            origin="server",
            trace_id=bytes(15) + b"\1",
            span_id=number.to_bytes(8, "big"),
            part="op-start",
            run=1,
            event=names.OPERATION_STARTED,
            sent_at=1,
            received_at=RECEIVED,
            sender=1,
            dropped_attributes=0,
            characters_replaced=0,
            attributes=_attributes(number),
            **of_project,
        )
    for number, (group, ordinal) in enumerate((("g", 1), ("g", 2), ("h", 1)), 1):
        add(
            "occurrences",
            run=1,
            operation_id=f"op-{number}",
            operation="push",
            group_id=group,
            number=ordinal,
            fields="{}",
            status="open",
            start_event=number,
        )
    add(
        "rejections",
        id=1,
        origin="server",
        event_id="op-x",
        digest=bytes(32),
        code=names.INVALID,
        message="bad",
        received_at=RECEIVED,
        sender=1,
        **of_project,
    )


def _attributes(number: int) -> bytes:
    return (
        '{"flowmark.workflow.name":"crm.sync","flowmark.run.id":"r1",'
        f'"flowmark.operation.name":"push","flowmark.operation.id":"op-{number}"}}'
    ).encode()
