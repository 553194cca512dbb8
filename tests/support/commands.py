"""Commands run in this process, as their tests run them."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from flowmark_otel.commands.root import root


def invoke(*arguments: str) -> Result:
    """Run a command, whatever its answer."""
    return CliRunner().invoke(root, arguments)


def cli(*arguments: str) -> Any:
    """The JSON document of a command that succeeds."""
    answer = invoke(*arguments, "--json")
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)
