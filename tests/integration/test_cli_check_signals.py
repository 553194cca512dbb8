"""``check`` on spans that mark tries by a convention of others: attempts, or why not (E5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flowmark_otel.commands.root import root
from flowmark_otel.wire import budget
from tests.support.payloads import as_json, request, span
from tests.support.signals import FOLDER


def check(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(root, ["check", *map(str, arguments)])


def lines(*names: str, signals: str = "safe") -> list[str]:
    """What is said of some captures, folders aside."""
    answer = check("--signals", signals, *(FOLDER / f"real_{name}.json" for name in names))
    assert answer.exit_code == 0, answer.output
    return answer.stdout.replace(f"{FOLDER}/", "").splitlines()


def test_attempts_are_listed_by_group() -> None:
    """E5: which spans would be attempts: convention, group, operation, each try and its end."""
    said = lines("celery_retry")
    assert said[0] == (
        "signal: celery: group 'df9c594d-d104-46a7-9872-4c5de352e5e9' of operation 't.x':"
        " 1 failed, 2 failed, 3 completed"
    )
    assert said[2] == (
        "signal: real_celery_retry.json item 0 'apply_async/t.x' and 4 others: no attempt by"
        " celery: it is the message on its way, not a try of the task"
    )
    assert said[-1].endswith(
        " 0 annotated, 0 of them refused; 0 events, 0 would be taken, 0"
        " refused; 0 notes; 5 observed attempts by signals"
    )


def test_what_would_join_tries_of_several_traces_is_said() -> None:
    """E5: root tries are runs of their own; what has to be set to make them one is named."""
    [note] = [line for line in lines("celery_links") if line.startswith("note: ")]
    assert "occurs in 3 runs, whose identity came from service name or trace id" in note
    assert "set flowmark.workflow.name and flowmark.run.id on all its spans" in note


def test_totals_of_one_span_are_kept_as_such() -> None:
    """E5, A10: three sends within one span are said to be three, and no attempt 3."""
    said = lines("botocore_dynamodb_503_503_200")
    assert "retry_attempts is 2: the span contains 3 sends" in said[0]
    assert said[-1].endswith("0 observed attempts by signals")


def test_what_is_not_enabled_says_how_and_why_not() -> None:
    """E5: what is no fact is named with its setting and its doubt; enabled, it is read."""
    said = lines("azure")
    assert "it is try 1, and would be an attempt with FLOWMARK_SIGNALS=safe,azure_core" in said[0]
    assert "an application may give the client request id" in said[0]
    [read] = [line for line in lines("azure", signals="azure_core") if line.startswith("signal")]
    assert read.endswith("of operation 'GET': 1 failed, 2 failed, 3 completed")


def test_a_number_without_a_group_is_told_what_to_set() -> None:
    """E5: where nothing says which sends belong together, the keys that would are named."""
    said = lines("stainless")
    assert "x_stainless_retry_count 2, counted from 0, makes it try 3" in said[2]
    assert "set flowmark.attempt.group_id and flowmark.attempt.number" in said[2]


def test_the_environment_says_what_is_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 8: check reads FLOWMARK_SIGNALS as the SDK and the backend do; others are not its."""
    monkeypatch.setenv("FLOWMARK_SIGNALS", "none")
    monkeypatch.setenv("FLOWMARK_PROTOCOL", "nonsense")
    answer = check(FOLDER / "real_celery_retry.json")
    assert answer.exit_code == 0
    assert "it is try 1, and would be an attempt with FLOWMARK_SIGNALS=safe" in answer.stdout
    assert "0 observed attempts" in answer.stdout


def test_a_name_that_is_none_is_a_usage_fault() -> None:
    """Section 7: a wrong name is refused with those that exist, exit 2."""
    answer = check("--signals", "celary", FOLDER / "real_celery_retry.json")
    assert answer.exit_code == 2
    assert "any of safe, celery" in answer.output


def test_json_names_each_span() -> None:
    """Section 7: --json holds one entry a span, with the number where it would be an attempt."""
    answer = check("--json", FOLDER / "real_celery_retry.json")
    found: list[Any] = json.loads(answer.stdout)["signals"]
    assert len(found) == 10
    tries = [each for each in found if each["number"] is not None]
    assert [(each["operation"], each["number"], each["says"]) for each in tries] == [
        ("t.x", 1, "failed"),
        ("t.x", 2, "failed"),
        ("t.x", 3, "completed"),
        ("t.y", 1, "failed"),
        ("t.y", 2, "failed"),
    ]


def test_tries_that_contradict_each_other_are_noted(tmp_path: Path) -> None:
    """E5: two spans of one number would be a conflict that nobody is told of; check tells."""
    given = {"celery.action": "run", "messaging.message.id": "t", "celery.state": "RETRY"}
    trace = "0af7651916cd43dd8448eb211c80319c"
    spans = [span(number, given, traceId=trace) for number in (1, 2)]
    path = tmp_path / "twice.json"
    path.write_bytes(as_json(request(spans)))
    answer = check(path)
    assert answer.exit_code == 0
    [note] = [line for line in answer.stdout.splitlines() if line.startswith("note: ")]
    assert "would not be kept as an attempt: " in note


def test_many_spans_that_no_backend_looks_at_are_none_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E5, row 17: what check alone looks for does not make a file too large."""
    monkeypatch.setattr(budget, "MAX_ANNOTATED", 3)
    path = tmp_path / "many.json"
    given = {"http.request.resend_count": 1}
    path.write_bytes(as_json(request([span(number, given) for number in range(1, 6)])))
    assert check(path).exit_code == 0
