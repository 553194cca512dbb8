"""``runs delete``, ``audit`` and ``quotas``, on the store itself and beside a serve that runs."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowmark_otel.backend.keys import Keys
from flowmark_otel.commands.root import root
from tests.support import payloads
from tests.support.api import story
from tests.support.commands import cli, invoke
from tests.support.history import attempt, ingested, operation_of, run_of, span
from tests.support.payloads import JSON, as_json, request
from tests.support.serving import Serving, run_cli


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with three runs of a workflow in its project ``default``."""
    path = tmp_path / "store.db"
    with ingested(path) as store:
        project = Keys(store.store).ensure_project("default")
        store.send(
            span(1, run_of("r0", outcome="partial"), failed=True),
            span(2, attempt("g", 1, run_id="r0"), failed=True),
            span(3, attempt("g", 2, run_id="r1")),
            span(4, operation_of("r2", operation="load")),
            project=project,
        )
    return f"sqlite:///{path}"


def runs(url: str) -> list[str]:
    """The run ids of a store, the latest first."""
    return [run["run_id"] for run in cli("runs", "list", "--db", url)["items"]]


def test_a_run_is_deleted_after_a_question(url: str) -> None:
    """Contract, section 7: `runs delete KEY` asks, names the run, and does nothing on no."""
    [run] = cli("runs", "list", "--db", url, "--run-id", "r0")["items"]
    answer = CliRunner().invoke(root, ["runs", "delete", "--db", url, run["key"]], input="n\n")
    assert answer.exit_code == 1
    assert "Delete run 'r0' of 'crm.sync' for good?" in answer.stderr
    assert "r0" in runs(url)
    answer = CliRunner().invoke(root, ["runs", "delete", "--db", url, run["key"]], input="y\n")
    assert answer.exit_code == 0, answer.output
    assert "deleted 1 runs with 4 events. Evidence that still arrives" in answer.stdout
    assert "r0" not in runs(url)


def test_a_workflow_is_deleted_without_one(url: str) -> None:
    """Contract, section 7: `runs delete --workflow NAME --yes` does what the API does, as JSON."""
    found = cli("runs", "delete", "--db", url, "--workflow", "crm.sync", "--yes")
    assert (found["runs"], found["audit"]) == (3, 1)
    assert runs(url) == []
    again = invoke("runs", "delete", "--db", url, "--workflow", "crm.sync", "--yes")
    assert again.exit_code == 1
    assert "there is no run of the workflow 'crm.sync'" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "name either the KEY of a run"),
        (("k", "--workflow", "w"), 2, "name either the KEY of a run"),
        (("no-key", "--yes"), 1, "there is no run with the key 'no-key'"),
        (("k", "--project", "none"), 1, "the store has no project 'none'"),
    ],
)
def test_a_deletion_that_names_nothing_says_what_to_do(
    url: str, arguments: tuple[str, ...], code: int, says: str
) -> None:
    """D5: wrong usage exits with 2, what is not there with 1; nothing is deleted."""
    answer = invoke("runs", "delete", "--db", url, *arguments)
    assert answer.exit_code == code
    assert says in answer.stderr
    assert len(runs(url)) == 3


def test_the_audit_is_listed(url: str) -> None:
    """Issue 4, deletion: `audit` says who, what, when and how much, as a table and as JSON."""
    assert "nothing was deleted by anybody" in invoke("audit", "--db", url).stdout
    cli("runs", "delete", "--db", url, "--workflow", "crm.sync", "--yes")
    [entry] = cli("audit", "--db", url)["items"]
    assert entry["actor"] == f"command:{getpass.getuser()}"
    assert (entry["action"], entry["subject"], entry["runs"]) == ("delete_workflow", "crm.sync", 3)
    assert entry["finished_at"] > entry["at"]
    assert "crm.sync" in invoke("audit", "--db", url, "--project", "default").stdout
    assert invoke("audit", "--db", url, "--project", "none").exit_code == 1


def test_quotas_are_set_and_listed(url: str) -> None:
    """Issue 4, quotas: set for one project, with what it holds beside; `default` takes it back."""
    [before] = cli("quotas", "list", "--db", url)["items"]
    assert before["quotas"] == dict.fromkeys(("events", "workflows", "operations", "groups"))
    assert before["held"] == {"events": 8, "workflows": 1, "operations": 2, "groups": 2}
    found = cli("quotas", "set", "--db", url, "--events", "11", "--groups", "unlimited")
    assert found["quotas"] == {
        "events": 11,
        "workflows": None,
        "operations": None,
        "groups": "unlimited",
    }
    assert cli("quotas", "set", "--db", url, "--events", "default")["quotas"]["events"] is None
    assert "unlimited" in invoke("quotas", "list", "--db", url).stdout
    said = invoke("quotas", "set", "--db", url, "--groups", "unlimited")
    assert said.stdout == "default: groups unlimited\n"
    for wrong in ((), ("--events", "-1"), ("--events", "many")):
        assert invoke("quotas", "set", "--db", url, *wrong).exit_code == 2


def test_a_deletion_runs_beside_serve(tmp_path: Path) -> None:
    """Issue 4, deletion: a serve that goes on taking requests meets the tombstone at once."""
    body = as_json(request(story()))
    with Serving(tmp_path / "store.db", "--insecure-no-auth") as serving:
        assert serving.post("traces", body, JSON).json()["stored"] == "13"
        done = run_cli("runs", "delete", "--db", serving.url, "--workflow", "crm.sync", "--yes")
        assert done.returncode == 0, done.stderr
        receipt = serving.post("traces", body, JSON).json()
        assert receipt["duplicate"] == receipt["received"]
        assert serving.get("/runs")["items"] == []


def test_serve_applies_its_quotas(tmp_path: Path) -> None:
    """Contract, section 4: a request whose events are all over a quota is answered 400.

    Its receipt names quota and mend.
    """
    with Serving(tmp_path / "store.db", "--insecure-no-auth", "--max-events", "13") as serving:
        assert serving.post("traces", as_json(request(story())), JSON).json()["stored"] == "13"
        answer = serving.post("traces", as_json(request([payloads.span(77, operation_of())])), JSON)
        assert answer.status_code == 400
        assert "quota of 13 events is used up; raise it with" in answer.text


def test_serve_lets_runs_expire(tmp_path: Path) -> None:
    """Contract, sections 5 and 7: with `--retain` runs go by themselves."""
    body = as_json(request(story()))
    with Serving(tmp_path / "store.db", "--insecure-no-auth", "--retain", "1s") as serving:
        assert serving.post("traces", body, JSON).json()["stored"] == "13"
        while serving.get("/runs")["items"]:
            pass
