"""``replay FILE…``: dead letters and quarantined records again, under the ids they had (C7)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click

from flowmark_otel import names
from flowmark_otel.commands.console import NO, as_json, print_json, printable
from flowmark_otel.commands.letters import Left, Waiting, waiting
from flowmark_otel.commands.posting import STOPS, post
from flowmark_otel.commands.receipts import Judgement
from flowmark_otel.commands.remote import Backend, remote


class Refused(NamedTuple):
    """What was sent again and still was not acknowledged."""

    waiting: Waiting
    judgement: Judgement


@dataclass(slots=True)
class Report:
    """What became of everything that waited; ``stopped``: the rest was not tried."""

    letters: int = 0
    records: int = 0
    events: Counter[str] = field(default_factory=Counter)
    refused: list[Refused] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    stopped: bool = False

    @property
    def acknowledged(self) -> bool:
        """Whether everything that was found was sent and taken."""
        return not (self.refused or self.stopped or self.left)


@click.command()
@click.argument(
    "paths",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)
@remote
@as_json
def command(paths: tuple[Path, ...], backend: Backend, *, json_output: bool) -> None:
    """Send dead letters and quarantined records of a spool again, to a backend or a collector.

    FILE is a file of dead letters, a quarantined file, a quarantine folder, or the folder of a
    spool. Event ids are kept: what is known already is answered as duplicate, so replaying twice is
    harmless. Nothing is removed; do so when all is acknowledged. Exits with 1 if anything was not.
    """
    try:
        report = _replay(chain.from_iterable(waiting(path) for path in paths), backend)
    except OSError as error:
        msg = f"{error.filename or 'a file'} cannot be read ({error.strerror})"
        raise click.ClickException(msg) from error
    if json_output:
        print_json(_document(report))
    else:
        for line in _lines(report, backend.endpoint):
            click.echo(line)
    if not report.acknowledged:
        sys.exit(NO)


def _replay(found: Iterable[Waiting | Left], backend: Backend) -> Report:
    report = Report()
    for each in found:
        if isinstance(each, Left):
            report.left.append(each)
            continue
        judgement = post(each.request, backend)
        if each.letter:
            report.letters += each.size
        else:
            report.records += each.size
        report.events.update(judgement.states)
        if judgement.reason:
            report.refused.append(Refused(each, judgement))
        if judgement.reason in STOPS:
            report.stopped = True
            break
    return report


def _lines(report: Report, endpoint: str) -> Iterable[str]:
    for left in report.left:
        yield printable(f"{left.place}: {left.says}")
    for waiting_still, judgement in report.refused:
        place = printable(waiting_still.request.place)
        if waiting_still.letter:
            was = f"{waiting_still.node}, {waiting_still.exception}: {waiting_still.message}"
            place = f"{place} (failed at {printable(was)})"
        detail = f": {printable(judgement.detail)}" if judgement.detail else ""
        yield f"{place}: not acknowledged, {judgement.reason}{detail}"
        for each in judgement.rejections:
            named = each.event_id or f"item {each.item}"
            yield f"  {each.code}: {printable(named)}: {printable(each.message)}"
    if report.stopped:
        yield "Stopped here: the rest would have fared no better and was not tried."
    counted = [
        f"{count} {what}{'' if count == 1 else 's'}"
        for count, what in ((report.letters, "dead letter"), (report.records, "record"))
        if count
    ]
    events = [f"{count} {state}" for state, count in sorted(report.events.items())]
    yield (
        f"{' and '.join(counted) or 'nothing'} to {endpoint}:"
        f" {', '.join(events) or 'no events of ours'}"
    )
    if report.acknowledged and counted:
        yield "All of it is acknowledged; nothing was removed, you may do so."


def _document(report: Report) -> dict[str, object]:
    return {
        "acknowledged": report.acknowledged,
        "letters": report.letters,
        "records": report.records,
        "events": dict(sorted(report.events.items())),
        "stopped": report.stopped,
        "left": [left._asdict() for left in report.left],
        "failed": [
            {
                "place": each.waiting.request.place,
                names.FAILURE_NODE: each.waiting.node or None,
                names.FAILURE_EXCEPTION: each.waiting.exception or None,
                "reason": each.judgement.reason,
                "detail": each.judgement.detail,
                "rejections": [
                    {**one._asdict(), "item": one.item if one.item >= 0 else None}
                    for one in each.judgement.rejections
                ],
            }
            for each in report.refused
        ],
    }
