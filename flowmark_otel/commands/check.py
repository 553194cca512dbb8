"""``check FILE…``: lints captured telemetry before anything is sent (E5)."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

import click

from flowmark_otel.commands.console import NO, as_json, print_json, printable
from flowmark_otel.commands.files import captured
from flowmark_otel.commands.lint import Note, Refusal, Report, lint
from flowmark_otel.dashboard.words import several

FILES = click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)


@click.command()
@FILES
@as_json
def command(files: tuple[Path, ...], *, json_output: bool) -> None:
    """Lint OTLP JSON, JSON lines or protobuf, traces or logs.

    Prints one line for each span that would be refused: why, and what it would be otherwise.
    Keys that are not known and groups that seem torn apart are named too. Exits with 1 if
    anything would be refused.
    """
    report = lint(chain.from_iterable(captured(path) for path in files))
    if json_output:
        print_json(_document(report))
    else:
        _print(report)
    if not report.is_clean:
        sys.exit(NO)


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
    click.echo(
        f"{several(report.requests, 'request')}{unread}:"
        f" {several(report.items, 'span or record', 'spans and records')},"
        f" {report.annotated:,} annotated, {len(report.refused):,} of them refused;"
        f" {several(report.events + report.events_refused, 'event')},"
        f" {report.events:,} would be taken, {report.events_refused:,} refused;"
        f" {several(len(report.notes), 'note')}"
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
    }
