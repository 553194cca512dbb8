"""``demo``: the loopback story against a backend of its own, and what was recorded (A27)."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from flowmark_otel.commands.console import NO, as_json, console, print_json
from flowmark_otel.commands.demo_story import ToldGroup, ToldRun, tell
from flowmark_otel.commands.remote import Backend
from flowmark_otel.commands.sources import ApiSource
from flowmark_otel.commands.tables import Json, attempts_table, runs_table
from flowmark_otel.config import ServeOptions
from flowmark_otel.server import Server

_LOOPBACK = "127.0.0.1:0"


@click.command()
@click.option("--once", is_flag=True, help="End after printing instead of serving until Ctrl-C.")
@as_json
def command(*, once: bool, json_output: bool) -> None:
    """Record a story with the stock OpenTelemetry SDK and show what was recorded.

    Applications retry in plain code and say so with span attributes alone: an operation that
    failed and was tried again, a run that failed partially and the run that recovers it, a group
    with a gap. The backend keeps it in a temporary store, without keys, on loopback. Exits with 1
    if what is read back is not what was recorded.
    """
    with tempfile.TemporaryDirectory(prefix="flowmark-demo-") as folder:
        options = ServeOptions(
            db=f"sqlite:///{Path(folder, 'demo.db')}",
            grpc=_LOOPBACK,
            http=_LOOPBACK,
            insecure_no_auth=True,
        )
        if not asyncio.run(_demonstrate(options, once=once, json_output=json_output)):
            sys.exit(NO)


async def _demonstrate(options: ServeOptions, *, once: bool, json_output: bool) -> bool:
    """Whether everything was read back; serves until interrupted unless ``once``."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopping.set)
    async with Server(options) as server:
        told = await asyncio.to_thread(tell, server.http_address, server.grpc_address)
        address = f"http://{server.http_address}"
        faults = await asyncio.to_thread(_show, address, told, json_output=json_output)
        for fault in faults:
            click.echo(f"not as recorded: {fault}", err=True)
        if not once:
            click.echo(f"Look at it at {address}/ (Ctrl-C ends).", err=json_output)
            await stopping.wait()
    return not faults


def _show(address: str, told: list[ToldRun], *, json_output: bool) -> list[str]:
    """Read the story back through the API and print it; returns what differs from it."""
    source = ApiSource(Backend(address))
    runs: list[Json] = []
    groups: list[Json] = []
    faults: list[str] = []
    for expected in told:
        found = source.runs(2, workflow=expected.workflow, run_id=expected.run_id)
        if len(found) != 1:
            faults.append(f"{expected.workflow}: {len(found)} runs {expected.run_id}")
            continue
        of_run = source.attempts(found[0]["key"])
        runs.append(found[0])
        groups += of_run
        faults += differences(expected, found[0], of_run)
    operations = Backend(address).get("/api/v1/operations")["items"]
    if json_output:
        print_json(
            {"url": f"{address}/", "runs": runs, "attempts": groups, "operations": operations}
        )
        return faults
    out = console()
    out.print(runs_table(runs))
    out.print(attempts_table(groups, evidence=False))
    click.echo(_rates(operations))
    return faults


def differences(expected: ToldRun, run: Json, groups: list[Json]) -> list[str]:
    """Where a run does not read as it was told, a sentence each."""
    retry_of = run["retry_of"]
    compared: dict[str, tuple[object, object]] = {
        "status": (expected.status, run["status"]),
        "outcome": (expected.outcome, run["outcome"]),
        "result": (dict(expected.result), dict(run["result"])),
        "retry of": (expected.retry_of, retry_of["run_id"] if retry_of else None),
        "retry resolved": (True, retry_of["resolved"] if retry_of else True),
        "occurrences": (
            expected.ordinary + sum(len(group.attempts) for group in expected.groups),
            run["counts"]["occurrences"],
        ),
        "groups": (list(expected.groups), [_group(group) for group in groups]),
    }
    return [
        f"{expected.workflow} {expected.run_id}: {what} is {found!r}, recorded was {wanted!r}"
        for what, (wanted, found) in compared.items()
        if wanted != found
    ]


def _group(group: Mapping[str, Any]) -> ToldGroup:
    return ToldGroup(
        group["operation"],
        group["group_id"],
        tuple(
            (
                attempt["number"],
                attempt["status"],
                attempt["error"]["code"] if attempt["error"] else None,
            )
            for attempt in group["attempts"]
        ),
        tuple((first, last) for first, last in group["gaps"]),
        group["verdict"],
    )


def _rates(rows: list[Json]) -> str:
    """Both error rates over all operations (E4)."""

    def total(rate: str, part: str) -> int:
        return sum(int(row[rate][part]) for row in rows)

    return (
        f"{total('attempt_errors', 'numerator')} of {total('attempt_errors', 'denominator')}"
        f" attempts failed; {total('operation_errors', 'numerator')} of"
        f" {total('operation_errors', 'denominator')} operations failed in the end."
    )
