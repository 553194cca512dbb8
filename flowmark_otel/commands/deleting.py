"""``runs delete``: a run or a workflow for good, on the store itself (contract, section 7)."""

from __future__ import annotations

from typing import Final

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from sqlalchemy import func, select

from flowmark_otel.backend.deletion import SAYS, Deleted, Deleter
from flowmark_otel.backend.read import NotFound
from flowmark_otel.backend.removal import Buried
from flowmark_otel.backend.store import Store, schema
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.commands.console import as_json, print_json, printable
from flowmark_otel.commands.database import actor, database, existing
from flowmark_otel.commands.sources import StoreSource, project_of
from flowmark_otel.errors import FlowmarkError

_PROJECT: Final = click.option(
    "--project", default="default", show_default=True, help="Project to delete from."
)


@click.command()
@database
@_PROJECT
@click.argument("key", required=False)
@click.option("--workflow", metavar="NAME", help="All runs of a workflow instead of one run.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def delete(
    *,
    db: str | None,
    project: str,
    key: str | None,
    workflow: str | None,
    yes: bool,
    json_output: bool,
) -> None:
    """Delete the run with this KEY, or with --workflow all runs of a workflow, for good.

    serve may go on meanwhile. Evidence that still arrives for what was deleted is acknowledged and
    not kept. Who deleted what is listed by flowmark-otel audit.
    """
    if (key is None) == (workflow is None):
        msg = "name either the KEY of a run, as runs list gives it, or --workflow NAME"
        raise click.UsageError(msg)
    with existing(db) as store:
        project_id = project_of(store, project)
        if workflow is None:
            deleted = _run(store, project, project_id, key or "", yes=yes)
        else:
            deleted = _workflow(store, project_id, workflow, yes=yes)
    if json_output:
        print_json({**deleted._asdict(), "says": SAYS})
    else:
        click.echo(f"deleted {deleted.runs} runs with {deleted.events} events. {SAYS}")


def _run(store: Store, project: str, project_id: int, key: str, *, yes: bool) -> Deleted:
    found = StoreSource(store, project).run(key)
    if found is None:
        msg = f"there is no run with the key {printable(key)!r}; runs list gives the keys"
        raise FlowmarkError(msg)
    named = f"run {printable(found['run_id'])!r} of {printable(found['workflow'])!r}"
    _confirm(f"Delete {named} for good?", yes=yes)
    return Deleter(store).run(project_id, key, actor())


def _workflow(store: Store, project_id: int, name: str, *, yes: bool) -> Deleted:
    columns = schema.runs.c
    asked = select(func.count()).where(columns.project_id == project_id, columns.workflow == name)
    with snapshot(store.engine) as connection:
        count = int(connection.execute(asked).scalar_one())
    if not count:
        msg = f"there is no run of the workflow {printable(name)!r}"
        raise FlowmarkError(msg)
    _confirm(f"Delete all {count} runs of {printable(name)!r} for good?", yes=yes)
    columns_shown = (TextColumn("{task.description}"), MofNCompleteColumn())
    with Progress(*columns_shown, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("runs deleted", total=count)

        def shown(buried: Buried) -> None:
            progress.update(task, completed=buried.runs)

        try:
            return Deleter(store).workflow(project_id, name, actor(), shown)
        except NotFound as error:
            msg = f"another deleted the runs of {printable(name)!r} meanwhile"
            raise FlowmarkError(msg) from error


def _confirm(question: str, *, yes: bool) -> None:
    if not yes:
        click.confirm(question, abort=True, err=True)
