"""``check FILE…``: lints captured telemetry before anything is sent (E5)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import click

from flowmark_otel.commands.console import NO, as_json, print_json, printable
from flowmark_otel.commands.explained import sentences
from flowmark_otel.commands.files import captured
from flowmark_otel.commands.lint import Note, Refusal, Report, lint
from flowmark_otel.config import client_options
from flowmark_otel.dashboard.words import several
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.signals import Signals, signals_of

FILES = click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)


@click.command()
@FILES
@click.option("--signals", metavar="LIST", help="As FLOWMARK_SIGNALS: safe, none, or names.")
@as_json
def command(files: tuple[Path, ...], signals: str | None, *, json_output: bool) -> None:
    """Lint OTLP JSON, JSON lines or protobuf, traces or logs.

    Prints one line for each span that would be refused: why, and what it would be otherwise.
    Keys that are not known and groups that seem torn apart are named too. Of what other
    instrumentations write it says which spans would be attempts, which not, and why. Exits with 1
    if anything would be refused.
    """
    report = lint(chain.from_iterable(captured(path) for path in files), _enabled(signals))
    if json_output:
        print_json(_document(report))
    else:
        _print(report)
    if not report.is_clean:
        sys.exit(NO)


def _enabled(given: str | None) -> Signals:
    """The signals of the option, else of the environment. Raises ConfigurationError."""
    options, faults = client_options({"signals": given}, _only_signals(os.environ))
    if faults:
        raise ConfigurationError(faults)
    return signals_of(options.signals)


def _only_signals(environ: Mapping[str, str]) -> dict[str, str]:
    name = "FLOWMARK_SIGNALS"
    return {name: environ[name]} if name in environ else {}


def _print(report: Report) -> None:
    for fault in report.faults:
        click.echo(f"refused: {printable(fault.place)}: {printable(fault.says)}")
    for refusal in report.refused:
        click.echo(
            f"refused: {_where(refusal)}: {printable('; '.join(refusal.says))}."
            f" Would be: {printable(refusal.would_be)}"
        )
    for note in report.notes:
        click.echo(f"note: {_where(note)}: {printable(note.says)}")
    unread = f" ({len(report.faults):,} unreadable)" if report.faults else ""
    for line in sentences(report.signals):
        click.echo(f"signal: {printable(line)}")
    observed = sum(each.number is not None for each in report.signals)
    more = f"; {several(observed, 'observed attempt')} by signals" if report.signals else ""
    click.echo(
        f"{several(report.requests, 'request')}{unread}:"
        f" {several(report.items, 'span or record', 'spans and records')},"
        f" {report.annotated:,} annotated, {len(report.refused):,} of them refused;"
        f" {several(report.events + report.events_refused, 'event')},"
        f" {report.events:,} would be taken, {report.events_refused:,} refused;"
        f" {several(len(report.notes), 'note')}{more}"
    )


def _where(found: Refusal | Note) -> str:
    place = printable(found.place)
    if found.item < 0:
        return place
    return f"{place} item {found.item}" + (f" {printable(found.name)!r}" if found.name else "")


def _document(report: Report) -> dict[str, object]:
    return {
        "clean": report.is_clean,
        "requests": report.requests,
        "items": report.items,
        "annotated": report.annotated,
        "events": report.events,
        "events_refused": report.events_refused,
        "faults": [{"place": fault.place, "says": fault.says} for fault in report.faults],
        "refused": [refusal._asdict() for refusal in report.refused],
        "notes": [
            {**note._asdict(), "item": note.item if note.item >= 0 else None}
            for note in report.notes
        ],
        "signals": [each._asdict() for each in report.signals],
    }
