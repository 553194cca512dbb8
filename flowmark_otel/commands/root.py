"""The command group; a command's module is imported when the command is asked for."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Final

import click

from flowmark_otel.errors import ConfigurationError, FlowmarkError

DISTRIBUTION: Final = "flowmark-otel"
_COMMANDS: Final = (
    "audit",
    "check",
    "collect",
    "demo",
    "doctor",
    "export",
    "keys",
    "migrate",
    "quotas",
    "replay",
    "runs",
    "send",
    "serve",
)


class _Commands(click.Group):
    """Finds each command in the module of its name, and words our errors for people."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"flowmark_otel.commands.{cmd_name}").command
        if not isinstance(command, click.Command):
            msg = f"flowmark_otel.commands.{cmd_name} has no command"
            raise TypeError(msg)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; an error of ours exits with 1, one that lies in the settings with 2."""
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            raise click.UsageError("\n  ".join(error.faults)) from error
        except FlowmarkError as error:
            raise click.ClickException(str(error)) from error


def installed_version(distribution: str = DISTRIBUTION) -> str:
    """The version of an installed distribution."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(installed_version(), "-V", "--version", prog_name=DISTRIBUTION)
def root() -> None:
    """Record the retries of applications from OpenTelemetry spans.

    Exit codes: 0 fine, 1 the answer is no, 2 usage.
    """
