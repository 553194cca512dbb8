"""``send FILE…``: puts captured telemetry into a backend and judges each receipt (A22)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.progress import Progress

from flowmark_otel.commands.check import FILES
from flowmark_otel.commands.console import NO, as_json, print_json, printable
from flowmark_otel.commands.files import Captured, captured
from flowmark_otel.commands.posting import STOPS, post
from flowmark_otel.commands.receipts import Judgement
from flowmark_otel.commands.remote import Backend, remote
from flowmark_otel.dashboard.words import several


class Sent(NamedTuple):
    """One request and what became of it."""

    place: str
    size: int
    judgement: Judgement


@click.command()
@FILES
@remote
@as_json
def command(files: tuple[Path, ...], backend: Backend, *, json_output: bool) -> None:
    """Send OTLP JSON, JSON lines or protobuf to a backend, one request after the other.

    Files go as they are; only metrics are left out. Sending a file again is harmless: what is
    known already is answered as duplicate. Exits with 1 if anything was not acknowledged.
    """
    requests = chain.from_iterable(captured(path) for path in files)
    total = sum(path.stat().st_size for path in files)
    totals: Counter[str] = Counter()
    refused: list[Sent] = []
    count = 0
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task("sending", total=total)
        for sent in _send(requests, backend):
            progress.advance(task, sent.size)
            count += 1
            totals.update(sent.judgement.states)
            if sent.judgement.reason:
                refused.append(sent)
    if json_output:
        print_json(_document(count, totals, refused))
    else:
        _print(backend.endpoint, count, totals, refused)
    if refused:
        sys.exit(NO)


def _send(requests: Iterator[Captured], backend: Backend) -> Iterator[Sent]:
    """Post each request; stops at the first one that no other could do better than."""
    for request in requests:
        judgement = post(request, backend)
        yield Sent(request.place, len(request.body), judgement)
        if judgement.reason in STOPS:
            return


def _print(endpoint: str, count: int, totals: Counter[str], refused: list[Sent]) -> None:
    for sent in refused:
        judgement = sent.judgement
        detail = f": {printable(judgement.detail)}" if judgement.detail else ""
        click.echo(f"{printable(sent.place)}: not acknowledged, {judgement.reason}{detail}")
        for rejection in judgement.rejections:
            named = rejection.event_id or f"item {rejection.item}"
            click.echo(f"  {rejection.code}: {printable(named)}: {printable(rejection.message)}")
    parts = [f"{number} {state}" for state, number in sorted(totals.items())]
    uncounted = sum(1 for sent in refused if not sent.judgement.states)
    if uncounted:
        parts.append(f"no events found in {several(uncounted, 'request')} not acknowledged")
    said = ", ".join(parts) or "no events of ours"
    click.echo(f"{several(count, 'request')} to {endpoint}: {said}")


def _document(count: int, totals: Counter[str], refused: list[Sent]) -> dict[str, object]:
    return {
        "acknowledged": not refused,
        "requests": count,
        "events": dict(sorted(totals.items())),
        "failed": [
            {
                "place": sent.place,
                "reason": sent.judgement.reason,
                "detail": sent.judgement.detail,
                "rejections": [
                    {**each._asdict(), "item": each.item if each.item >= 0 else None}
                    for each in sent.judgement.rejections
                ],
            }
            for sent in refused
        ],
    }
