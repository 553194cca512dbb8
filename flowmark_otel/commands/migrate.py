"""``migrate``: brings a store's schema to this version (contract, section 7)."""

from __future__ import annotations

import click

from flowmark_otel.backend.store import database_of, migrate_store
from flowmark_otel.backend.store.migrate import REVISIONS
from flowmark_otel.commands.console import as_json, print_json
from flowmark_otel.commands.database import database, url_of


@click.command()
@database
@as_json
def command(db: str | None, *, json_output: bool) -> None:
    """Bring the schema of a store to this version; makes the store where there is none.

    Stop `serve` first.
    """
    url = url_of(db)
    name = database_of(url).name
    newest = REVISIONS[-1]
    before = migrate_store(url)
    if json_output:
        print_json({"store": name, "from": before, "to": newest})
    elif before == newest:
        click.echo(f"{name} has schema {newest} already")
    else:
        click.echo(f"{name}: schema {before or 'none'} to {newest}")
