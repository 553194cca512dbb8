"""A store as commands open it: the option ``--db``, and what is said where there is none."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import click

from flowmark_otel.backend.store import Store, database_of, has_store, open_store
from flowmark_otel.config import ServeOptions, resolve
from flowmark_otel.errors import FlowmarkError

Decorated = TypeVar("Decorated", bound=Callable[..., object])

_VARIABLE: Final = "FLOWMARK_SERVE_DB"


def database(command: Decorated) -> Decorated:
    """The option ``--db``, passed as ``db``; None is the store that ``serve`` takes by default."""
    return click.option(
        "--db",
        metavar="URL",
        help=(
            "Store, such as sqlite:////var/lib/flowmark.db or postgresql://user@host/name;"
            f" default as serve ({_VARIABLE})."
        ),
    )(command)


def url_of(db: str | None) -> str:
    """The URL of the store, the default one included; raises ConfigurationError."""
    return resolve(
        ServeOptions, {"db": db}, {_VARIABLE: os.environ.get(_VARIABLE, "")}
    ).database_url


@contextmanager
def existing(db: str | None) -> Iterator[Store]:
    """A store that is there already, open for the block; reading must not make one."""
    url = url_of(db)
    if not has_store(url):
        name = database_of(url).name
        msg = f"there is no store at {name}; name one with --db, or start one with serve"
        raise FlowmarkError(msg)
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def actor() -> str:
    """Who does something to a store by a command: it, and the system's user, where he has a name.

    For the audit.
    """
    try:
        return f"command:{getpass.getuser()}"
    except (KeyError, OSError, ImportError):
        return "command"
