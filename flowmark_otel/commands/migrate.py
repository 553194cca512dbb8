"""``migrate``: brings a store's schema to this version (contract, section 7)."""

from __future__ import annotations

import click

from flowmark_otel.backend.store import database_of, migrate_store
from flowmark_otel.backend.store.migrate import REVISIONS
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.backend.summary.writing import start_over
from flowmark_otel.commands.console import as_json, print_json
from flowmark_otel.commands.database import database, existing, url_of


@click.command()
@database
@click.option("--summarise", is_flag=True, help="Make all summaries again from the evidence.")
@as_json
def command(db: str | None, *, summarise: bool, json_output: bool) -> None:
    """Bring the schema of a store to this version; makes the store where there is none.

    Stop `serve` first. With --summarise, what lists and figures are read from is forgotten and made
    again from the evidence, as `serve` does for runs that changed.
    """
    url = url_of(db)
    name = database_of(url).name
    newest = REVISIONS[-1]
    before = migrate_store(url)
    if summarise:
        with existing(db) as store:
            store.write(start_over).result()
            fold_all(store)
    if json_output:
        print_json({"store": name, "from": before, "to": newest})
    elif before == newest:
        click.echo(f"{name} has schema {newest} already")
    else:
        click.echo(f"{name}: schema {before or 'none'} to {newest}")
