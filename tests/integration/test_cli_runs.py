"""``runs``: what is said where a name or a group leads to many runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tests.support.commands import invoke
from tests.support.payloads import JSON, as_json, request, span
from tests.support.server import options, running
from tests.support.serving import Asking

NAMED = {"flowmark.operation.name": "copy"}
TRY = {"flowmark.attempt.group_id": "customer-batch-42", "flowmark.workflow.name": "crm.sync"}


def test_a_run_id_of_many_workflows_names_some(tmp_path: Path) -> None:
    """A17: of many runs with one id the latest ten are named, and the list that has them all."""
    url = f"sqlite:///{tmp_path}/s.db"
    spans = [
        span(n, {"flowmark.run.id": "it's", "flowmark.workflow.name": f"w{n}\x1b", **NAMED})
        for n in range(1, 13)
    ]
    with running(options(tmp_path / "s.db", insecure_no_auth=True)) as backend:
        Asking(backend.http).post("traces", as_json(request(spans)), JSON)
    answer = invoke("runs", "show", "it's", "--db", url)
    assert answer.exit_code == 1
    assert "more than 10 runs have the run id" in answer.stderr
    assert answer.stderr.count("(w") == 10
    assert "(w12\\x1b)" in answer.stderr
    hint = answer.stderr.partition("; runs list ")[2].removesuffix(" has more\n")
    listed = invoke("runs", "list", *shlex.split(hint), "--db", url)
    assert len(json.loads(listed.stdout)["items"]) == 12


def test_a_group_in_other_runs_is_counted(tmp_path: Path) -> None:
    """A3: below the attempts stands in how many other runs a group occurs, with the mend."""
    url = f"sqlite:///{tmp_path}/s.db"
    said = []
    with running(options(tmp_path / "s.db", insecure_no_auth=True)) as backend:
        for begin, end in ((0, 2), (2, 25)):
            spans = [
                span(n + 1, {**TRY, "flowmark.attempt.number": 1, "flowmark.run.id": f"r{n}"})
                for n in range(begin, end)
            ]
            Asking(backend.http).post("traces", as_json(request(spans)), JSON)
            said.append(invoke("runs", "show", "r0", "--db", url).stdout.splitlines()[-2:])
    assert "also occurs in 1 other run: " in said[0][0]
    assert "also occurs in 24 other runs, the latest 20: " in said[1][0]
    assert said[1][0].count(", ") == 1 + 19
    assert said[0][1] == said[1][1]
    assert "set flowmark.workflow.name and flowmark.run.id" in said[0][1]
