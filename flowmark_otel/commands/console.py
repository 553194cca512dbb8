"""How commands answer: tables for people, one JSON document for programs, exit codes for both."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TypeVar

import click
from rich.console import Console
from rich.text import Text

Decorated = TypeVar("Decorated", bound=Callable[..., object])

NO = 1
"""Exit code of a command whose answer is no."""

_PIPED_WIDTH = 200


def as_json(command: Decorated) -> Decorated:
    """The option ``--json``, passed as ``json_output``."""
    return click.option(
        "--json", "json_output", is_flag=True, help="Print one JSON document instead of text."
    )(command)


def console() -> Console:
    """Standard output for people; without a terminal wide, so that no id is cut."""
    found = Console(file=sys.stdout, highlight=False)
    if found.is_terminal:
        return found
    return Console(file=sys.stdout, highlight=False, width=_PIPED_WIDTH)


def cell(value: object) -> Text:
    """What stands in a table: text and never markup, a dash where nothing is known."""
    return Text("–" if value is None else printable(value))


def print_json(document: object) -> None:
    """One JSON document on standard output; what cannot stand in UTF-8 is escaped."""
    click.echo(json.dumps(document, indent=2))


def printable(text: object) -> str:
    """Text as it may be shown in a terminal or a log: control characters are escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in str(text)
    )
