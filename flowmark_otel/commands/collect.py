"""``collect``: the collector pipeline of a configuration file (contract, section 9)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from flowmark_otel.collector import describe
from flowmark_otel.collector.config.loading import load
from flowmark_otel.collector.plan import Plan
from flowmark_otel.commands.console import NO, as_json, print_json, printable
from flowmark_otel.errors import ConfigurationError


@click.command()
@click.option(
    "--config",
    "path",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The configuration, YAML in the grammar of the OpenTelemetry Collector.",
)
@click.option(
    "--validate", is_flag=True, help="Say what would be built, or what is wrong; start nothing."
)
@click.option(
    "--insecure-no-auth",
    is_flag=True,
    help="Let receivers that others can reach take telemetry from anybody.",
)
@as_json
def command(path: Path, *, validate: bool, insecure_no_auth: bool, json_output: bool) -> None:
    """Validate, fold and deliver what services send, until SIGTERM or SIGINT; then drain.

    Everything that is wrong with the file is said at once, and exits with 1. Values may name
    variables: ${env:NAME}, ${env:NAME:-default}.
    """
    if json_output and not validate:
        msg = "--json goes with --validate"
        raise click.UsageError(msg)
    try:
        plan = load(path, os.environ, no_auth=insecure_no_auth)
        if not validate:
            _start(plan)
            return
    except ConfigurationError as error:
        _refuse(path, error.faults, json_output=json_output)
    if json_output:
        print_json({"valid": True, **describe.document_of(plan)})
    else:
        click.echo(f"{printable(path)} is valid")
        for line in describe.lines_of(plan):
            click.echo(printable(line))


def _start(plan: Plan) -> None:
    from flowmark_otel.collector.run import run  # noqa: PLC0415  only what is started is imported

    run(plan)


def _refuse(path: Path, faults: list[str], *, json_output: bool) -> NoReturn:
    if json_output:
        print_json({"valid": False, "faults": faults})
    else:
        click.echo(f"{printable(path)} cannot be used:", err=True)
        for fault in faults:
            click.echo(f"  {printable(fault)}", err=True)
    sys.exit(NO)
