"""``runs list | show | delete``: runs and their attempts in the terminal (A9, A16, A17)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from flowmark_otel.commands import moments
from flowmark_otel.commands.console import as_json, console, print_json, printable
from flowmark_otel.commands.database import database, existing
from flowmark_otel.commands.deleting import delete
from flowmark_otel.commands.remote import Backend, remote
from flowmark_otel.commands.sources import ApiSource, Source, StoreSource
from flowmark_otel.commands.tables import (
    Json,
    attempts_table,
    elsewhere_lines,
    occurrences_table,
    run_lines,
    runs_table,
)
from flowmark_otel.errors import FlowmarkError

_STATUSES = ("open", "completed", "failed", "unknown")
_MANY: Final = 1000
_NAMED: Final = 10  # keys that an error message names
_PROJECT = click.option(
    "--project", default="default", show_default=True, help="Project to read, with --db."
)


class _ListByDefault(click.Group):
    """A group whose options without a command are those of ``list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``list`` where no command is named."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListByDefault)
def command() -> None:
    """Show or delete runs; through the API, or with --db on the store itself.

    Without a command, list.
    """


@command.command(name="list")
@remote
@database
@_PROJECT
@click.option("--workflow", metavar="NAME")
@click.option("--run-id", metavar="ID")
@click.option("--status", type=click.Choice(_STATUSES))
@click.option(
    "--since", type=moments.since, metavar="WHEN", help="First received since: 2h, a date."
)
@click.option("--limit", type=click.IntRange(1, _MANY), default=50, show_default=True)
@as_json
def list_runs(  # noqa: PLR0913  (one for each option)
    *,
    backend: Backend,
    db: str | None,
    project: str,
    workflow: str | None,
    run_id: str | None,
    status: str | None,
    since: int | None,
    limit: int,
    json_output: bool,
) -> None:
    """List runs, the latest first."""
    with _source(backend, db, project) as source:
        found = source.runs(limit, workflow=workflow, run_id=run_id, status=status, since=since)
    if json_output:
        print_json({"items": found})
    elif found:
        console().print(runs_table(found))
    else:
        click.echo("no runs; a span needs an attempt, operation, outcome or result key to make one")


@command.command()
@remote
@database
@_PROJECT
@click.argument("run", metavar="ID")
@as_json
def show(
    *,
    backend: Backend,
    db: str | None,
    project: str,
    run: str,
    json_output: bool,
) -> None:
    """Show one run with its attempts; ID is a key as lists give it, or a run id."""
    with _source(backend, db, project) as source:
        found = _one(source, run)
        groups = source.attempts(found["key"])
        occurrences = source.occurrences(found["key"])
    if json_output:
        print_json({"run": found, "attempts": groups, "operations": occurrences})
        return
    out = console()
    out.print(runs_table([found]))
    for line in run_lines(found):
        click.echo(printable(line))
    if groups:
        out.print(attempts_table(groups, evidence=True))
    for line in elsewhere_lines(groups):
        click.echo(line)
    ordinary = [occurrence for occurrence in occurrences if occurrence["attempt"] is None]
    if ordinary:
        out.print(occurrences_table(ordinary))


command.add_command(delete)


@contextmanager
def _source(backend: Backend, db: str | None, project: str) -> Iterator[Source]:
    if db is None:
        yield ApiSource(backend)
        return
    with existing(db) as store:
        yield StoreSource(store, project)


def _one(source: Source, name: str) -> Json:
    """The run of that key, else the only one of that run id."""
    found = source.run(name)
    if found is not None:
        return found
    several = source.runs(_NAMED + 1, run_id=name)
    if not several:
        msg = f"there is no run with the key or run id {name!r}; runs list shows what there is"
        raise FlowmarkError(msg)
    if len(several) > 1:
        raise FlowmarkError(_choice(name, several))
    return several[0]


def _choice(name: str, several: list[Json]) -> str:
    """What is said where more than one run has the run id."""
    keys = ", ".join(f"{run['key']} ({printable(run['workflow'])})" for run in several[:_NAMED])
    if len(several) <= _NAMED:
        return f"{len(several)} runs have the run id {name!r}; name one by its key: {keys}"
    return (
        f"more than {_NAMED} runs have the run id {name!r}; name one by its key, the latest are"
        f" {keys}; runs list --json --run-id {shlex.quote(name)} has more"
    )
