"""``audit``: who deleted what, made or revoked which key, and when (contract, section 5)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click
from rich.table import Table

from flowmark_otel.backend.audit import Deed, entries
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.views import rfc3339
from flowmark_otel.commands.console import as_json, cell, console, print_json
from flowmark_otel.commands.database import database, existing
from flowmark_otel.commands.sources import project_of

_MANY: Final = 10_000


@click.command()
@database
@click.option("--project", metavar="NAME", help="Of one project alone.")
@click.option("--limit", type=click.IntRange(1, _MANY), default=50, show_default=True)
@as_json
def command(db: str | None, project: str | None, limit: int, *, json_output: bool) -> None:
    """List deletions of runs and workflows, and keys made and revoked, the latest first."""
    with existing(db) as store:
        project_id = None if project is None else project_of(store, project)
        with snapshot(store.engine) as connection:
            found = entries(connection, project_id, limit)
    if json_output:
        print_json({"items": [_document(one) for one in found]})
        return
    if not found:
        click.echo(
            "nothing was deleted by anybody, no key made or revoked; what expires is not in it"
        )
        return
    table = Table("when", "project", "who", "what", "which", "runs", "events", "finished")
    for one in found:
        finished = "yes" if one.finished_at is not None else "broken off"
        cells = (one.project, one.actor, one.action, one.subject, one.runs, one.events, finished)
        table.add_row(*map(cell, (rfc3339(one.at)[:19] + "Z", *cells)))
    console().print(table)


def _document(one: Deed) -> dict[str, object]:
    finished = None if one.finished_at is None else rfc3339(one.finished_at)
    return {**asdict(one), "at": rfc3339(one.at), "finished_at": finished}
