"""``keys create | list | revoke``: project keys, on the store itself (contract, section 4)."""

from __future__ import annotations

import shlex
import sys

import click
from rich.table import Table

from flowmark_otel import names
from flowmark_otel.backend.accept import INSECURE_PROJECT
from flowmark_otel.backend.browsers import (
    EVENTS_PER_MINUTE,
    MAX_EVENTS_PER_MINUTE,
    MIN_EVENTS_PER_MINUTE,
)
from flowmark_otel.backend.keys import KINDS, Key, Keys, check_project
from flowmark_otel.backend.store import database_of, open_store
from flowmark_otel.backend.views import rfc3339
from flowmark_otel.clock import SystemClock
from flowmark_otel.commands.console import NO, as_json, cell, console, print_json, printable
from flowmark_otel.commands.database import actor, database, existing, url_of
from flowmark_otel.commands.moments import moment
from flowmark_otel.config import web_origin


def origin(text: str) -> str:
    """An origin of web pages, for an option's type."""
    try:
        return web_origin(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.group()
def command() -> None:
    """Make, list and revoke the keys of projects, with --db on the store itself."""


@command.command()
@database
@click.option("--project", metavar="NAME", required=True, help="Made if it is missing.")
@click.option("--kind", type=click.Choice(KINDS), required=True)
@click.option("--expires", type=moment, metavar="DATE", help="2027-01-31 or 2027-01-31T12:00:00Z.")
@click.option(
    "--origin",
    "pages",
    metavar="ORIGIN",
    multiple=True,
    type=origin,
    help="Of a browser key, needed, repeatable: pages from there may send, https://shop.example.",
)
@click.option(
    "--events-per-minute",
    metavar="N",
    type=click.IntRange(MIN_EVENTS_PER_MINUTE, MAX_EVENTS_PER_MINUTE),
    help=f"Of a browser key: more in one minute are refused; {EVENTS_PER_MINUTE} if not given.",
)
@as_json
def create(
    db: str | None,
    project: str,
    kind: str,
    expires: int | None,
    pages: tuple[str, ...],
    events_per_minute: int | None,
    *,
    json_output: bool,
) -> None:
    """Make a key; it is shown this once and stored hashed.

    A key of kind browser is public, as it stands in a page: it only sends, and what it sends is
    kept apart and marked as coming from a browser.
    """
    try:
        check_project(project)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--project") from error
    _check_pages(kind, pages, events_per_minute)
    if expires is not None and expires <= SystemClock().now_ns():
        msg = f"--expires must lie ahead, found {rfc3339(expires)}"
        raise click.UsageError(msg)
    store = open_store(url_of(db))
    try:
        key_id, token = Keys(store).create(
            project,
            kind,
            expires,
            pages=pages,
            events_per_minute=events_per_minute,
            actor=actor(),
        )
    finally:
        store.close()
    if json_output:
        print_json(
            {
                "key_id": key_id,
                "key": token,
                "project": project,
                "kind": kind,
                "expires_at": _time(expires),
                "origins": list(pages),
            }
        )
    else:
        click.echo(token)


@command.command(name="list")
@database
@as_json
def list_keys(db: str | None, *, json_output: bool) -> None:
    """List all keys, revoked ones too, never their secrets."""
    with existing(db) as store:
        found = Keys(store).list()
    if json_output:
        print_json({"items": [_document(key) for key in found]})
        return
    if not found:
        store_url = shlex.quote(database_of(url_of(db)).url)
        click.echo(
            f"no keys; make one: flowmark-otel keys create --db {store_url}"
            f" --project {INSECURE_PROJECT} --kind {names.KEY_INGEST} (or {names.KEY_READ})"
        )
        return
    table = Table(
        "key id", "project", "kind", "created", "expires", "revoked", "last used", "sends from"
    )
    for key in found:
        times = (key.created_at, key.expires_at, key.revoked_at, key.last_used_at)
        shown = [None if time is None else rfc3339(time)[:19] + "Z" for time in times]
        pages = " ".join(key.pages)
        table.add_row(*map(cell, (key.key_id, key.project, key.kind, *shown, pages)))
    console().print(table)


@command.command()
@database
@click.argument("key_id")
@as_json
def revoke(db: str | None, key_id: str, *, json_output: bool) -> None:
    """Revoke a key for good; KEY_ID is the middle part of fmk_<id>_<secret>."""
    with existing(db) as store:
        known = Keys(store).revoke(key_id, actor=actor())
    if json_output:
        print_json({"key_id": key_id, "revoked": known})
    elif known:
        click.echo(f"revoked {key_id}; a serve that runs refuses it within two seconds")
    else:
        click.echo(f"there is no key {printable(key_id)!r}; keys list names all")
    if not known:
        sys.exit(NO)


def _check_pages(kind: str, pages: tuple[str, ...], events_per_minute: int | None) -> None:
    """Whether what is a browser key's alone is given with one."""
    if kind == names.KEY_BROWSER and not pages:
        msg = "--kind browser needs --origin, once for each origin whose pages send with the key"
        raise click.UsageError(msg)
    if kind != names.KEY_BROWSER and (pages or events_per_minute is not None):
        msg = f"--origin and --events-per-minute go with --kind {names.KEY_BROWSER} only"
        raise click.UsageError(msg)


def _time(value: int | None) -> str | None:
    return None if value is None else rfc3339(value)


def _document(key: Key) -> dict[str, object]:
    return {
        "key_id": key.key_id,
        "project": key.project,
        "kind": key.kind,
        "created_at": _time(key.created_at),
        "expires_at": _time(key.expires_at),
        "revoked_at": _time(key.revoked_at),
        "last_used_at": _time(key.last_used_at),
        "origins": list(key.pages),
        "events_per_minute": key.events_per_minute,
    }
