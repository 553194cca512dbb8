"""``demo``: the story, told by the stock SDK, reads back as it was told (A27 in its first form)."""

from __future__ import annotations

import json
import signal
import subprocess

import requests

from flowmark_otel.commands import demo
from flowmark_otel.commands.demo_story import ToldRun
from tests.support.serving import CLI, run_cli


def test_once_shows_the_story_and_ends() -> None:
    """A9: demo --once shows what failed, was tried again or is not known, and ends with 0."""
    answer = run_cli("demo", "--once")
    assert answer.returncode == 0, answer.stderr
    for words in (
        "push-to-crm",
        "customer-batch-42",
        "CRM_UNAVAILABLE",
        "completed after retry",
        "imported=3",
        "confirmed=2, remaining=1",
        "no evidence",
        "2 of 5 attempts failed; 1 of 8 operations failed in the end.",
    ):
        assert words in answer.stdout


def test_the_story_in_json() -> None:
    """A15: both runs keep their own status, outcome and result; a gap stays a gap (A10)."""
    found = json.loads(run_cli("demo", "--once", "--json").stdout)
    sync, partial, recovery, invoice = found["runs"]
    assert (sync["status"], sync["result"]) == ("completed", {"imported": 3})
    assert (partial["status"], partial["outcome"]) == ("failed", "partial")
    assert partial["result"] == {"confirmed": 2, "remaining": 1}
    assert (recovery["status"], recovery["outcome"]) == ("completed", "complete")
    assert recovery["retry_of"] == {
        "workflow": "booking.confirm",
        "run_id": partial["run_id"],
        "resolved": True,
        "key": partial["key"],
    }
    assert [run["key"] for run in partial["retried_by"]] == [recovery["key"]]
    assert invoice["counts"]["attempts"] == 2
    [mail] = [group for group in found["attempts"] if group["operation"] == "deliver-mail"]
    assert mail["gaps"] == [[2, 2]]


def test_it_serves_its_page_until_interrupted() -> None:
    """D5: without --once the pages stay up, without a key, until Ctrl-C ends them with 0."""
    process = subprocess.Popen([*CLI, "demo"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if line.startswith("Look at it at"))
        page = requests.get(line.split()[4], timeout=30)
        assert page.status_code == 200
        assert "push-to-crm" in page.text or "crm.sync" in page.text
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 0
        process.stdout.close()


def test_what_is_not_as_told_is_found() -> None:
    """A9: the demonstration compares what it reads with what it told, and names a difference."""
    run = {
        "status": "completed",
        "outcome": "complete",
        "result": {"sent": 1},
        "retry_of": None,
        "counts": {"occurrences": 0},
    }
    told = ToldRun("invoice.send", "run-1", "completed", "complete", {"sent": 1})
    assert demo.differences(told, run, []) == []
    [fault] = demo.differences(told._replace(outcome="partial"), run, [])
    assert fault == "invoice.send run-1: outcome is 'complete', recorded was 'partial'"
