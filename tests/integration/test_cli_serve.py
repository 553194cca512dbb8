"""``serve`` and what is asked of it from the command line: first start, keys, runs, export."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support import certificates
from tests.support.commands import cli, invoke
from tests.support.payloads import JSON, as_json, request, span
from tests.support.serving import Serving, run_cli

TRY = {
    "flowmark.attempt.group_id": "customer-batch-42",
    "flowmark.workflow.name": "crm.sync",
    "flowmark.run.id": "run-1",
}
NAMED = {"flowmark.operation.name": "copy"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's backend keeps its store."""
    return tmp_path_factory.mktemp("serve") / "flowmark.db"


@pytest.fixture(scope="module")
def serving(store: Path) -> Iterator[Serving]:
    """A backend with keys, on a store that is new."""
    with Serving(store) as found:
        yield found


@pytest.fixture(scope="module")
def recorded(serving: Serving) -> str:
    """The run id of a failed and a completed attempt, sent with the ingest key."""
    spans = [
        span(1, {**TRY, "flowmark.attempt.number": 1}, status={"code": 2}),
        span(2, {**TRY, "flowmark.attempt.number": 2}),
        span(
            3,
            {
                "flowmark.workflow.name": "crm.sync",
                "flowmark.run.id": "run-1",
                "flowmark.run.outcome": "complete",
                "flowmark.run.result.imported": 3,
            },
        ),
        span(4, {"flowmark.run.id": "run-1", "flowmark.attempt.group_id": "half"}),
        *(
            span(number, {"flowmark.run.id": "twin", "flowmark.workflow.name": workflow, **NAMED})
            for number, workflow in ((5, "import"), (6, "export"))
        ),
    ]
    answer = requests.post(
        f"{serving.endpoint}/v1/traces",
        data=as_json(request(spans)),
        headers={"content-type": JSON, "authorization": f"Bearer {serving.keys[0]}"},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    return "run-1"


def test_first_start_prints_keys_once(store: Path, tmp_path: Path) -> None:
    """D5: a new store gets an ingest and a read key, shown at the first start and never again."""
    path = tmp_path / "new.db"
    with Serving(path) as first:
        assert len(first.keys) == 2
        assert first.lines[-1] == f"ready grpc={first.grpc} http={first.http}"
    assert first.stop() == 0
    with Serving(path) as second:
        assert second.lines == [f"ready grpc={second.grpc} http={second.http}"]
    assert path != store


def test_a_store_used_without_keys_names_the_commands_that_make_them(tmp_path: Path) -> None:
    """D5: keys are asked for on a store in use that has none: serve says how to make them."""
    path = tmp_path / "s.db"
    with Serving(path, "--insecure-no-auth") as serving:
        assert len(serving.lines) == 1
    listed = invoke("keys", "list", "--db", serving.url)
    assert listed.stdout == (
        f"no keys; make one: flowmark-otel keys create --db {serving.url} --project default"
        " --kind ingest (or read)\n"
    )
    assert cli("keys", "list", "--db", serving.url) == {"items": []}
    create = f"flowmark-otel keys create --db {serving.url} --project default --kind"
    with Serving(path) as serving:
        assert [line.strip() for line in serving.lines[1:-1]] == [
            f"{create} ingest",
            f"{create} read",
        ]
        assert "no ingest and no read key" in serving.lines[0]
        made = invoke(*serving.lines[1].split()[1:])
        where = ("--endpoint", serving.endpoint, "--grpc-endpoint", serving.grpc)
        assert cli("doctor", *where, "--api-key", made.stdout.strip())
    with Serving(path) as serving:
        assert [line.strip() for line in serving.lines[1:-1]] == [f"{create} read"]
    cli("keys", "create", "--project", "p", "--kind", "admin", "--db", serving.url)
    with Serving(path) as serving:
        assert len(serving.lines) == 1


def test_the_printed_line_sends_a_first_span(serving: Serving) -> None:
    """D4: the line that the first start prints sends a span with the stock exporter as it is."""
    [line] = [line for line in serving.lines if "OTEL_EXPORTER_OTLP_ENDPOINT" in line]
    sent = subprocess.run(
        ["sh", "-c", line.strip()], capture_output=True, text=True, timeout=50, check=False
    )
    assert sent.returncode == 0, sent.stderr
    [run] = serving.get("/runs", serving.keys[1], operation="say-hello")["items"]
    [group] = serving.get(f"/runs/{run['key']}/attempts", serving.keys[1])["items"]
    assert (group["group_id"], group["attempts"][0]["status"]) == ("hello", "completed")


@pytest.mark.needs("openssl")
def test_over_tls_the_printed_line_and_the_commands_work(tmp_path: Path) -> None:
    """D5: with a certificate of one's own the first span, doctor and runs go over TLS."""
    pair = certificates.make(tmp_path)
    certificate = pair.certificate
    trusted = ("--certificate", str(certificate))
    # Bundles that the environment names would replace the exporter's own.
    env = {name: value for name, value in os.environ.items() if "CA_BUNDLE" not in name}
    with Serving(tmp_path / "s.db", *pair.options) as serving:
        [line] = [line for line in serving.lines if "OTEL_EXPORTER_OTLP_ENDPOINT" in line]
        subprocess.run(["sh", "-c", line.strip()], check=True, env=env, timeout=50)
        where = ("--endpoint", f"https://{serving.http}", *trusted)
        runs = cli("runs", *where, "--api-key", serving.keys[1])["items"]
        assert [run["counts"]["attempts"] for run in runs] == [1]
        asked = (*where, "--grpc-endpoint", serving.grpc, "--api-key", serving.keys[0])
        assert {each["state"] for each in cli("doctor", *asked)["findings"]} == {"ok"}
        untrusted = invoke("runs", "--endpoint", f"https://{serving.http}")
        assert untrusted.exit_code == 1
        assert "certificate" in untrusted.stderr


def test_runs_through_the_api_and_from_the_store_are_the_same(
    serving: Serving, recorded: str
) -> None:
    """A9: runs and their attempts read the same through the API and from the store itself."""
    api = ("--endpoint", serving.endpoint, "--api-key", serving.keys[1])
    own = ("--db", serving.url)
    listed = cli("runs", "list", "--workflow", "crm.sync", *api)
    assert [run["run_id"] for run in listed["items"]] == [recorded]
    assert cli("runs", "--workflow", "crm.sync", *own) == listed
    shown = cli("runs", "show", recorded, *api)
    assert cli("runs", "show", listed["items"][0]["key"], *own) == shown
    [group] = shown["attempts"]
    assert [attempt["status"] for attempt in group["attempts"]] == ["failed", "completed"]
    assert shown["run"]["result"] == {"imported": 3}


def test_runs_show_names_places_and_verdict(serving: Serving, recorded: str) -> None:
    """A9: a person sees each attempt by its ordinal, how it ended, and the span behind it."""
    answer = invoke("runs", "show", recorded, "--db", serving.url)
    assert answer.exit_code == 0, answer.stderr
    for words in ("customer-batch-42", "failed", "completed after retry", f"{2:016x}"):
        assert words in answer.stdout


@pytest.mark.parametrize("source", ["api", "db"])
def test_an_unknown_run_is_a_no(serving: Serving, recorded: str, source: str) -> None:
    """D5: asking for a run that is not there exits with 1 and says what to do."""
    assert recorded
    where = (
        ("--db", serving.url)
        if source == "db"
        else ("--endpoint", serving.endpoint, "--api-key", serving.keys[1])
    )
    answer = invoke("runs", "show", "no-such-run", *where)
    assert answer.exit_code == 1
    assert "'no-such-run'" in answer.stderr
    assert "runs list" in answer.stderr


def test_a_run_id_of_several_workflows_asks_for_the_key(serving: Serving, recorded: str) -> None:
    """A17: a run is named by workflow and run id; an id that two workflows have is not guessed."""
    assert recorded
    answer = invoke("runs", "show", "twin", "--db", serving.url)
    assert answer.exit_code == 1
    for run in serving.get("/runs", serving.keys[1], run_id="twin")["items"]:
        assert f"{run['key']} ({run['workflow']})" in answer.stderr
        shown = cli("runs", "show", run["key"], "--db", serving.url)
        assert [each["operation"] for each in shown["operations"]] == ["copy"]


def test_runs_without_a_key_says_which_key(serving: Serving) -> None:
    """D5: a missing or wrong kind of key is named, with the mend."""
    answer = invoke("runs", "--endpoint", serving.endpoint)
    assert answer.exit_code == 1
    assert "read key" in answer.stderr
    answer = invoke("runs", "--endpoint", serving.endpoint, "--api-key", serving.keys[0])
    assert answer.exit_code == 1
    assert "use a read key" in answer.stderr


@pytest.mark.parametrize("verbosity", [None, "ERROR"])
def test_a_port_in_use_is_said_in_our_words(tmp_path: Path, verbosity: str | None) -> None:
    """D5: the log of the library does not reach the user, unless the user asked for it."""
    env = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    env |= {"GRPC_VERBOSITY": verbosity} if verbosity else {}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        store = f"sqlite:///{tmp_path}/s.db"
        arguments = ("--grpc", address, "--http", "127.0.0.1:0", "--insecure-no-auth")
        answer = run_cli("serve", "--db", store, *arguments, env=env)
    assert answer.returncode == 2
    assert f"grpc {address} cannot be bound (Address already in use): choose" in answer.stderr
    assert "GRPC_VERBOSITY" not in answer.stderr
    assert answer.stderr.startswith("Error: ") == (verbosity is None)


def test_a_first_start_that_fails_spends_no_keys(tmp_path: Path) -> None:
    """D5: keys are shown at the first start that succeeds: one that fails before makes none."""
    path = tmp_path / "s.db"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        store = ("--db", f"sqlite:///{path}")
        failed = run_cli("serve", *store, "--grpc", address, "--http", "127.0.0.1:0")
    assert failed.returncode == 2
    with Serving(path) as serving:
        assert len(serving.keys) == 2


def test_export_writes_every_event_once(serving: Serving, recorded: str) -> None:
    """A9: the export holds stored and rejected evidence in order of arrival, a line an event."""
    answer = invoke("export", "--db", serving.url)
    assert answer.exit_code == 0, answer.stderr
    lines = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [line["received_at"] for line in lines] == sorted(line["received_at"] for line in lines)
    mine = [line for line in lines if line["run_id"] == recorded and line["state"] == "stored"]
    [run] = serving.get("/runs", serving.keys[1], workflow="crm.sync")["items"]
    events = serving.get(f"/runs/{run['key']}/events", serving.keys[1])["items"]
    shared = ("event_id", "event", "digest", "received_at", "sent_at", "attributes", "sender")
    assert [{name: line[name] for name in shared} for line in mine] == [
        {name: event[name] for name in shared} for event in events
    ]
    assert {line["run_key"] for line in mine} == {run["key"]}
    refused = [line for line in lines if line["state"] == "rejected"]
    assert [line["code"] for line in refused] == ["invalid", "invalid"]
    assert "flowmark.attempt.number" in refused[0]["message"]


def test_export_as_csv(serving: Serving, recorded: str) -> None:
    """Security: the same events as CSV; cells that begin like a formula are made text."""
    lines = invoke("export", "--db", serving.url).stdout.splitlines()
    answer = invoke("export", "--db", serving.url, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(answer.stdout, newline="")))
    assert [row["event_id"] for row in rows] == [
        json.loads(line)["event_id"] or "" for line in lines
    ]
    assert recorded in {row["run_id"] for row in rows}
    assert json.loads(rows[0]["attributes"]) == json.loads(lines[0])["attributes"]


def test_export_since_and_project(serving: Serving, recorded: str) -> None:
    """A9: since goes by arrival; another project's export has nothing of this one's."""
    assert recorded
    cli("keys", "create", "--project", "quiet", "--kind", "read", "--db", serving.url)
    for arguments in (("--since", "2200-01-01"), ("--project", "quiet")):
        answer = invoke("export", "--db", serving.url, *arguments)
        assert (answer.exit_code, answer.stdout) == (0, "")
    nobody = invoke("export", "--db", serving.url, "--project", "nope")
    assert (nobody.exit_code, nobody.stdout) == (1, "")
    assert "no project 'nope'" in nobody.stderr
    recent = invoke("export", "--db", serving.url, "--since", "1h")
    assert len(recent.stdout.splitlines()) >= 8


def test_keys_on_the_store(serving: Serving) -> None:
    """D5: a key made with --db works at a running serve, is listed without secret, and revoked."""
    create = ("keys", "create", "--project", "other", "--kind", "read", "--db", serving.url)
    assert cli(*create)["expires_at"] is None
    made = cli(*create, "--expires", "2200-01-01")
    assert made["expires_at"] == "2200-01-01T00:00:00.000000000Z"
    assert serving.get("/runs", made["key"])["items"] == []
    listed = cli("keys", "list", "--db", serving.url)["items"]
    assert made["key_id"] in [key["key_id"] for key in listed]
    assert made["key"] not in json.dumps(listed)
    assert cli("keys", "revoke", made["key_id"], "--db", serving.url)["revoked"] is True
    [revoked] = [
        key
        for key in cli("keys", "list", "--db", serving.url)["items"]
        if key["key_id"] == made["key_id"]
    ]
    assert revoked["revoked_at"] is not None
    browser = cli(
        *("keys", "create", "--project", "other", "--kind", "browser", "--db", serving.url),
        *("--origin", "https://shop.example:443", "--origin", "http://localhost:8080"),
    )
    [listed] = [
        key
        for key in cli("keys", "list", "--db", serving.url)["items"]
        if key["key_id"] == browser["key_id"]
    ]
    assert listed["origins"] == ["https://shop.example", "http://localhost:8080"]
    assert listed["events_per_minute"] == 6000
    unknown = invoke("keys", "revoke", "nobody", "--db", serving.url)
    assert unknown.exit_code == 1
    assert "no key 'nobody'" in unknown.stdout
