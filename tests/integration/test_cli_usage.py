"""What every command answers to wrong usage, to a store that is not there, and without extras."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flowmark_otel.commands.root import root


def cli(*arguments: str) -> Any:
    """The JSON document of a command that succeeds."""
    answer = CliRunner().invoke(root, [*arguments, "--json"])
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("keys", "create", "--project", "p", "--kind", "write"), "ingest"),
        (("keys", "create", "--project", " ", "--kind", "read"), "--project must not be blank"),
        (("keys", "create", "--project", "p", "--kind", "read", "--expires", "soon"), "2027-01-31"),
        (
            ("keys", "create", "--project", "p", "--kind", "read", "--expires", "2001-01-01"),
            "ahead",
        ),
        (("export", "--since", "yesterday"), "90d, 12h or 30m"),
        (("export", "--since", "2999-01-01"), "from 1970 to 2261"),
        (("export", "--format", "xml"), "jsonl"),
        (("serve", "--insecure-no-auth", "--http", "0.0.0.0:0"), "loopback"),
        (("serve", "--tls-cert", "/nowhere.pem"), "names no file"),
        (("serve", "--workers", "2"), "No such option"),
        (("check",), "FILE"),
        (("check", "/nowhere.json"), "does not exist"),
        (("runs", "--endpoint", "127.0.0.1:4318"), "must begin with http://"),
        (("collect",), "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    """D5: wrong usage exits with 2, naming what was found and the mend."""
    extra = ("--db", f"sqlite:///{tmp_path}/s.db") if arguments[0] in ("keys", "export") else ()
    answer = CliRunner().invoke(root, [*arguments, *extra])
    assert answer.exit_code == 2, answer.output
    assert says in answer.stderr


def test_reading_makes_no_store(tmp_path: Path) -> None:
    """D5: commands that read say that there is no store, and make none."""
    path = tmp_path / "none.db"
    for command in (("runs",), ("export",), ("keys", "list"), ("keys", "revoke", "x")):
        answer = CliRunner().invoke(root, [*command, "--db", f"sqlite:///{path}"])
        assert answer.exit_code == 1
        assert f"no store at {path}" in answer.stderr
        assert not path.exists()


def test_migrate_makes_a_store_and_leaves_a_current_one(tmp_path: Path) -> None:
    """D5: migrate brings a store to this version's schema; a current one is left as it is."""
    url = f"sqlite:///{tmp_path}/s.db"
    made = cli("migrate", "--db", url)
    assert made["from"] is None
    again = cli("migrate", "--db", url)
    assert (again["from"], again["to"]) == (made["to"], made["to"])


def test_the_cli_imports_without_the_server_extra() -> None:
    """D5: with the base install alone the command names the extra to install, and exits with 2."""
    code = (
        "import sys\n"
        "for name in ('click', 'rich'): sys.modules[name] = None\n"
        "from flowmark_otel.cli import main\n"
        "main()\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert answer.returncode == 2
    assert "pip install 'flowmark-otel[server]'" in answer.stderr
