"""``replay``: dead letters and quarantined records again, under the ids they had (C7)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from flowmark_otel import names
from flowmark_otel.clock import SystemClock
from flowmark_otel.deliver.spool.codec import encode_envelope, encode_resource
from flowmark_otel.deliver.spool.framing import frame
from flowmark_otel.model import event_id
from tests.integration.test_spool_delivery import spooled
from tests.support.commands import invoke
from tests.support.delivering import RESOURCE, attempts
from tests.support.payloads import request, span
from tests.support.server import Running, options, running

TRY = {names.ATTEMPT_GROUP_ID: "g", names.RUN_ID: "run-1"}


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Running]:
    """A backend with keys."""
    with running(options(tmp_path / "s.db")) as found:
        yield found


def replay(backend: Running, *paths: Path, text: bool = False) -> Result:
    """Run the command in this process."""
    shape = () if text else ("--json",)
    where = ("--endpoint", f"http://{backend.http}", "--api-key", backend.ingest_key)
    return invoke("replay", *shape, *where, *map(str, paths))


def letter(document: object, **changes: object) -> bytes:
    """One line of a file of dead letters, as the collector writes them."""
    line = {
        names.LETTER_TIME: "2026-11-30T12:00:00.000000001Z",
        names.FAILURE_ATTEMPTS: 5,
        names.FAILURE_EXCEPTION: "Unavailable",
        names.FAILURE_MESSAGE: "no answer",
        names.FAILURE_NODE: "flowmark",
        names.LETTER_INPUT: document,
        **changes,
    }
    return json.dumps(line).encode() + b"\n"


def written(path: Path, *lines: bytes) -> Path:
    """A file of those lines."""
    path.write_bytes(b"".join(lines))
    return path


def event_ids(store: Path) -> set[str]:
    """The ids of all events of a store."""
    with sqlite3.connect(store) as connection:
        rows = connection.execute("SELECT trace_id, span_id, part FROM events")
        return {event_id(*row) for row in rows}


def attempt(number: int, **given: object) -> dict[str, Any]:
    """A span that is one attempt."""
    return span(number, {**TRY, names.ATTEMPT_NUMBER: number, **given})


def test_letters_are_stored_once_however_often_they_are_replayed(
    backend: Running, tmp_path: Path
) -> None:
    """C7: event ids are kept, so what is replayed again is a duplicate and counts nothing."""
    path = written(
        tmp_path / "letters.jsonl",
        letter(request([attempt(1)])),
        b"\n",
        letter(request([attempt(2), span(3, {})])),
    )
    first, second = replay(backend, path), replay(backend, path)
    assert (first.exit_code, second.exit_code) == (0, 0)
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert (one["letters"], one["events"], one["failed"]) == (2, {"stored": 4}, [])
    assert (two["letters"], two["events"], two["acknowledged"]) == (2, {"duplicate": 4}, True)
    assert len(event_ids(tmp_path / "s.db")) == 4


def test_what_is_still_refused_is_said_with_its_reason(backend: Running, tmp_path: Path) -> None:
    """C7: a letter whose input breaks a rule yet is named, its neighbours are delivered."""
    path = written(
        tmp_path / "letters.jsonl",
        letter(
            request([attempt(1), attempt(2, **{names.ATTEMPT_GROUP_ID: ""}), attempt(0)]),
            **{names.FAILURE_EXCEPTION: "InvalidEnvelope", names.FAILURE_NODE: "flowmark/fold"},
        ),
    )
    said = replay(backend, path, text=True)
    assert said.exit_code == 1
    lines = said.stdout.splitlines()
    was = "(failed at flowmark/fold, InvalidEnvelope: no answer)"
    assert lines[0] == f"{path}:1 {was}: not acknowledged, rejected"
    assert any("invalid: op-" in line and names.ATTEMPT_GROUP_ID in line for line in lines[1:])
    assert any("invalid: item 2: trace id is all zero" in line for line in lines[1:])
    assert lines[-1].startswith("1 dead letter to http://")
    assert "2 stored" in lines[-1]


def test_lines_that_are_no_letters_are_named_and_the_rest_is_sent(
    backend: Running, tmp_path: Path
) -> None:
    """C7: a line cut by a crash, telemetry, and an input that never was a request are said."""
    whole = letter(request([attempt(1)]))
    path = written(
        tmp_path / "letters.jsonl",
        whole,
        json.dumps(request([attempt(2)])).encode() + b"\n",
        letter({names.UNREAD: "AAEC"}),
        letter(None),
        whole[:40],
    )
    answer = replay(backend, path)
    found = json.loads(answer.stdout)
    assert answer.exit_code == 1
    assert found["events"] == {"stored": 2}
    assert [each["place"] for each in found["left"]] == [f"{path}:2", f"{path}:5"]
    assert "flowmark-otel send" in found["left"][0]["says"]
    assert "cut short" in found["left"][1]["says"]
    assert [(each["place"], each["reason"]) for each in found["failed"]] == [
        (f"{path}:3", "not_sent"),
        (f"{path}:4", "not_sent"),
    ]


def test_a_quarantine_that_a_spool_made_is_delivered_with_its_ids(tmp_path: Path) -> None:
    """C7: what was answered without receipt is stored under its ids once somebody acknowledges."""
    folder = tmp_path / "spool"
    made = attempts(1, 3)
    older = options(tmp_path / "old.db", without=(names.CAPABILITY,))
    with running(older) as backend, spooled(backend, folder) as delivery:
        delivery.record(*made)
        delivery.lost()
    with running(options(tmp_path / "s.db")) as backend:
        by_spool = json.loads(replay(backend, folder).stdout)
        (kept,) = (folder / "quarantine").glob("*.unacknowledged")
        by_file = json.loads(replay(backend, kept).stdout)
    assert (by_spool["records"], by_spool["events"]) == (len(made), {"stored": len(made)})
    assert (by_file["records"], by_file["events"]) == (len(made), {"duplicate": len(made)})
    assert event_ids(tmp_path / "s.db") == {each.event_id for each in made}
    assert kept.exists()


def test_what_is_damaged_or_of_another_kind_stays_and_is_named(
    backend: Running, tmp_path: Path
) -> None:
    """Row 27: torn bytes and records of another version are kept, named, and hide no neighbour."""
    folder = tmp_path / "quarantine"
    folder.mkdir()
    now = SystemClock().now_ns()
    events = attempts(1, 2)
    records = [
        frame(encode_resource(RESOURCE) + encode_envelope(each), now + at)
        for at, each in enumerate(events)
    ]
    stem = f"{now:020d}-{'a' * 16}.v1"
    newer = frame(b"\x09" + bytes(8), now)
    content = records[0] + b"torn" + newer + b"".join(records[1:])
    kept = written(folder / f"{stem}.unacknowledged", content)
    torn = written(folder / f"{stem}.spool.12.torn", b"torn")
    answer = replay(backend, folder)
    found = json.loads(answer.stdout)
    assert answer.exit_code == 1
    assert found["events"] == {"stored": len(events)}
    assert [each["place"].partition(",")[0] for each in found["left"]] == [
        str(torn),
        str(kept),
        str(kept),
    ]


def test_what_nobody_takes_now_is_not_tried_on(tmp_path: Path) -> None:
    """C7: without an answer, or with a wrong key, the rest is left as it is and that is said."""
    path = written(
        tmp_path / "letters.jsonl", letter(request([attempt(1)])), letter(request([attempt(2)]))
    )
    answer = invoke("replay", "--json", "--endpoint", "http://127.0.0.1:9", str(path))
    found = json.loads(answer.stdout)
    assert answer.exit_code == 1
    assert (found["letters"], found["stopped"]) == (1, True)
    assert found["failed"][0]["reason"] == names.REASON_UNAVAILABLE


def test_an_empty_file_is_nothing_and_fine(backend: Running, tmp_path: Path) -> None:
    """C7: no dead letter is a good answer."""
    answer = replay(backend, written(tmp_path / "letters.jsonl"), text=True)
    assert answer.exit_code == 0
    assert answer.stdout == f"nothing to http://{backend.http}: no events of ours\n"
