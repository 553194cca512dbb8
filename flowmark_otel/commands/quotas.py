"""``quotas list | set``: what projects hold and may hold, on the store itself (section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import click
from rich.table import Table

from flowmark_otel.backend.holding import Limits
from flowmark_otel.backend.store.quotas import UNLIMITED, Usage, change, usage
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.commands.console import as_json, cell, console, print_json
from flowmark_otel.commands.database import database, existing
from flowmark_otel.commands.sources import project_of
from flowmark_otel.config.parsers import quota

Decorated = TypeVar("Decorated", bound=Callable[..., object])

_NAMES: Final = Limits._fields
_DEFAULT: Final = "default"


def _quota(value: str) -> int | str:
    """For an option's type: a number, ``unlimited``, or ``default``: what ``serve`` was told."""
    if value == _DEFAULT:
        return _DEFAULT
    try:
        found = quota(value)
    except ValueError as error:
        msg = "must be a whole number from 0, unlimited, or default for what serve was told"
        raise click.BadParameter(msg) from error
    return UNLIMITED if found is None else found


def _options(command: Decorated) -> Decorated:
    for name in reversed(_NAMES):
        command = click.option(
            f"--{name}", type=_quota, metavar="N", help="N, unlimited or default."
        )(command)
    return command


@click.group()
def command() -> None:
    """Say what projects hold and may hold, with --db on the store itself."""


@command.command(name="list")
@database
@as_json
def list_quotas(db: str | None, *, json_output: bool) -> None:
    """List all projects: held, and their own quotas; a dash is what serve was told."""
    with existing(db) as store, snapshot(store.engine) as connection:
        found = usage(connection)
    if json_output:
        print_json({"items": [_document(one) for one in found]})
        return
    table = Table("project", *(heading for name in _NAMES for heading in (name, "of")))
    for one in found:
        pairs = zip(one.held, one.quotas, strict=True)
        table.add_row(*map(cell, (one.project, *(x for pair in pairs for x in _shown(*pair)))))
    console().print(table)


@command.command(name="set")
@database
@click.option("--project", metavar="NAME", default="default", show_default=True)
@_options
@as_json
def set_quotas(
    db: str | None, project: str, *, json_output: bool, **given: int | str | None
) -> None:
    """Set quotas of one project; a serve that runs follows within ten seconds.

    What is held already stays; only what comes over a quota from now on is refused.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    if not asked:
        msg = f"name a quota: {', '.join(f'--{name}' for name in _NAMES)}"
        raise click.UsageError(msg)
    changes = {name: None if value == _DEFAULT else int(value) for name, value in asked.items()}
    with existing(db) as store:
        project_id = project_of(store, project)
        store.write(lambda connection: change(connection, project_id, changes)).result()
        with snapshot(store.engine) as connection:
            [now] = [one for one in usage(connection) if one.project == project]
    if json_output:
        print_json(_document(now))
    else:
        said = ", ".join(f"{name} {value}" for name, value in asked.items())
        click.echo(f"{project}: {said.replace(str(UNLIMITED), 'unlimited')}")


def _shown(held: int | None, own: int | None) -> tuple[object, object]:
    return held, "unlimited" if own == UNLIMITED else own


def _document(one: Usage) -> dict[str, object]:
    quotas = {
        name: "unlimited" if value == UNLIMITED else value
        for name, value in one.quotas._asdict().items()
    }
    return {"project": one.project, "held": one.held._asdict(), "quotas": quotas}
