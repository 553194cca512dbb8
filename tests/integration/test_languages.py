"""Programs in other languages, with the stock SDK of each, read back from a real ``serve``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Any, Final

import pytest

from tests.support.languages import built, run_language
from tests.support.programs import ROOT, Recorded
from tests.support.serving import Serving

pytestmark = pytest.mark.timeout(500)  # a first build downloads what the program needs

NEEDS: Final = {
    "go": pytest.mark.needs("go"),
    "node": pytest.mark.needs("node", "npm"),
    "java": pytest.mark.needs("java", "javac", "mvn"),
}
PROTOCOLS: Final = {
    "go": ["grpc", "http/protobuf"],
    "node": ["grpc", "http/protobuf", "http/json"],
    "java": ["grpc", "http/protobuf"],
}
PROGRAMS: Final = [
    pytest.param(language, protocol, marks=NEEDS[language], id=f"{language}-{protocol}")
    for language, protocols in PROTOCOLS.items()
    for protocol in protocols
]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A backend with keys."""
    with Serving(tmp_path_factory.mktemp("languages") / "s.db") as found:
        yield found


def groups(serving: Serving, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups of a run, as the API has them."""
    found: list[dict[str, Any]] = serving.get(f"/runs/{run['key']}/attempts", serving.keys[1])[
        "items"
    ]
    return found


@pytest.mark.parametrize(("language", "protocol"), PROGRAMS)
def test_plain_attributes_are_enough(
    serving: Serving, request: pytest.FixtureRequest, language: str, protocol: str
) -> None:
    """A26, D4: the SDK of another language, its own exporter and plain attributes, told whole.

    Numbers are integers whatever the language has for them and the encoding makes of them, also
    one that needs more than 32 bits.
    """
    command = built(language, request.config.cache.mkdir("languages"))
    endpoint = f"http://{serving.grpc if protocol == 'grpc' else serving.http}"
    run_id = run_language(command, protocol, endpoint, serving.keys[0])
    recorded = Recorded(serving)
    [run] = recorded.runs(run_id=run_id)
    assert (run["workflow"], run["status"], run["outcome"]) == (
        "crm.sync",
        "completed",
        "complete",
    )
    assert (run["result"], type(run["result"]["imported"])) == ({"imported": 3}, int)
    assert run["defaulted"] == []
    assert recorded.attempts(run) == [
        ("push-to-crm", "customer-batch-42", 1, "failed", "CRM_UNAVAILABLE"),
        ("push-to-crm", "customer-batch-42", 2, "completed", None),
    ]
    [group] = groups(serving, run)
    assert group["verdict"] == "after_retry"
    first = group["attempts"][0]
    assert (first["error"]["retryable"], first["limit"], type(first["limit"])) == (True, 3, int)
    events = serving.get(f"/runs/{run['key']}/events", serving.keys[1])["items"]
    deadlines = {
        event["attributes"]["flowmark.attempt.deadline_ms"]
        for event in events
        if "flowmark.attempt.deadline_ms" in event["attributes"]
    }
    assert len(deadlines) == 1
    assert all(type(deadline) is int and deadline > 2**40 for deadline in deadlines)
    assert [event["state"] for event in events] == ["stored"] * 6


def shown() -> list[tuple[str, str]]:
    """Each snippet of docs/languages.md: the file that it is said to come from, and its text."""
    text = (ROOT / "docs" / "languages.md").read_text()
    pattern = r"^\[`[^`]+`\]\(\.\./([^)]+)\)\n\n```\w+\n(.*?)^```"
    return re.findall(pattern, text, re.MULTILINE | re.DOTALL)


def test_what_is_shown_is_what_runs() -> None:
    """A26: every snippet of docs/languages.md is a part of its example, and each has one."""
    found = shown()
    assert [file.split("/")[-2] for file, _ in found] == ["go", "java", "node", "examples"]
    for file, snippet in found:
        lines = (ROOT / file).read_text().splitlines()
        wanted = snippet.splitlines()
        [start] = [at for at, line in enumerate(lines) if line.strip() == wanted[0]]
        assert dedent("\n".join(lines[start : start + len(wanted)])).splitlines() == wanted, file


def test_the_table_of_attributes_is_told_once() -> None:
    """D4: docs/languages.md and README have one and the same table."""
    tables = [
        re.findall(
            r"^\| [^|]* \| [^|]*`flowmark\.[^|]* \|$", (ROOT / name).read_text(), re.MULTILINE
        )
        for name in ("README.md", "docs/languages.md")
    ]
    assert tables[0] == tables[1]
    assert len(tables[1]) == 5
