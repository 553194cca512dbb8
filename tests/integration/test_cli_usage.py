"""What every command answers to wrong usage, to a store that is not there, and without extras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import cli, invoke


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("keys", "create", "--project", "p", "--kind", "write"), "ingest"),
        (("keys", "create", "--project", " ", "--kind", "read"), "must not be blank"),
        (("keys", "create", "--project", "a\x1bb", "--kind", "read"), "no control characters"),
        (("keys", "create", "--project", "p", "--kind", "read", "--expires", "soon"), "2027-01-31"),
        (
            ("keys", "create", "--project", "p", "--kind", "read", "--expires", "2001-01-01"),
            "ahead",
        ),
        (("keys", "create", "--project", "p", "--kind", "browser"), "needs --origin"),
        (
            ("keys", "create", "--project", "p", "--kind", "read", "--origin", "https://a.example"),
            "with --kind browser only",
        ),
        (
            ("keys", "create", "--project", "p", "--kind", "browser", "--origin", "a.example/b"),
            "an origin without a path",
        ),
        (("export", "--since", "yesterday"), "90d, 12h or 30m"),
        (("export", "--since", "2999-01-01"), "from 1970 to 2261"),
        (("export", "--format", "xml"), "jsonl"),
        (("serve", "--insecure-no-auth", "--http", "0.0.0.0:0"), "loopback"),
        (("serve", "--tls-cert", "/nowhere.pem"), "names no file"),
        (("serve", "--workers", "0"), "an integer from 1 to 64, found '0'"),
        (("check",), "FILE"),
        (("check", "/nowhere.json"), "does not exist"),
        (("runs", "--endpoint", "127.0.0.1:4318"), "must be an address such as http://"),
        (("runs", "--endpoint", "http://"), "must be an address such as http://"),
        (("runs", "--endpoint", "http://127.0.0.1:99999"), "0-65535, found 'http://127.0.0.1:9"),
        (("runs", "--endpoint", "http://a b"), "neither spaces nor"),
        (("runs", "--api-key", "fmk_a b"), "characters without spaces"),
        (("doctor", "--grpc-endpoint", "foo"), "must be HOST:PORT, found 'foo'"),
        (("doctor", "--grpc-endpoint", "http://"), "must be HOST:PORT"),
        (("doctor", "--grpc-endpoint", "127.0.0.1:99999"), "port from 0 to 65535"),
        (("doctor", "--grpc-endpoint", "http:4317/"), "must be HOST:PORT"),
        (("doctor", "--grpc-endpoint", "127.0.0.1:0"), "must be HOST:PORT such as"),
        (("collect",), "--config"),
        (("collect", "--config", "x.yaml", "--json"), "--json goes with --validate"),
        (("collects",), "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    """D5: wrong usage exits with 2, naming what was found and the mend."""
    extra = ("--db", f"sqlite:///{tmp_path}/s.db") if arguments[0] in ("keys", "export") else ()
    answer = invoke(*arguments, *extra)
    assert answer.exit_code == 2, answer.output
    assert says in answer.stderr


def test_reading_makes_no_store(tmp_path: Path) -> None:
    """D5: commands that read say that there is no store, and make none."""
    path = tmp_path / "none.db"
    for command in (("runs",), ("export",), ("keys", "list"), ("keys", "revoke", "x")):
        answer = invoke(*command, "--db", f"sqlite:///{path}")
        assert answer.exit_code == 1
        assert f"no store at {path}" in answer.stderr
        assert not path.exists()


@pytest.mark.parametrize(
    "command", [("migrate",), ("runs",), ("export",), ("keys", "list"), ("serve",)], ids=" ".join
)
def test_what_is_no_store_is_named(command: tuple[str, ...], tmp_path: Path) -> None:
    """Fault row 27: each command refuses a file that is no SQLite database, and leaves it alone."""
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database" * 1000)
    answer = invoke(*command, "--db", f"sqlite:///{path}")
    assert answer.exit_code == 2, answer.output
    assert f"--db: {path} is " in answer.stderr
    assert "damaged" in answer.stderr
    assert path.read_bytes() == b"not a database" * 1000


@pytest.mark.parametrize("command", ["migrate", "serve"])
def test_a_store_that_cannot_be_opened_is_said_in_a_line(command: str) -> None:
    """D5: a fault of the file is said in one line, without what a library says of itself."""
    answer = invoke(command, "--db", "sqlite:////dev/full")
    assert answer.exit_code == 1
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("Error: /dev/full cannot be opened now: ")


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
