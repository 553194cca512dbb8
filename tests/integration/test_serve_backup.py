"""A backup taken while ``serve`` is at work, and what is restored from it."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import requests

from flowmark_otel.wire import receipt
from tests.support.killing import (
    SPANS,
    Ledger,
    batch,
    over_grpc,
    over_http,
    sending,
)
from tests.support.otlp import traces_protobuf
from tests.support.payloads import PROTOBUF
from tests.support.postgres import Cluster
from tests.support.serving import Serving
from tests.support.urls import Place

OPERATIONS = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text("utf-8")
SQLITE = "sqlite3 /var/lib/flowmark/flowmark.db \"VACUUM INTO '/backup/flowmark.db'\""
DUMP = "pg_dump --format=custom DATABASE > flowmark.dump"
RESTORE = "pg_restore --dbname=NEW flowmark.dump"


def runs(serving: Serving) -> dict[str, str]:
    """The run id behind each run's link."""
    return {run["key"]: run["run_id"] for run in serving.get("/runs", limit=200)["items"]}


def run(command: str, **places: str) -> None:
    """Run a documented command, its places replaced by ours."""
    assert command in " ".join(OPERATIONS.split())
    for name, place in places.items():
        command = command.replace(name, place)
    subprocess.run(["sh", "-c", command], check=True, timeout=50)


def check(store: Place, copy: Place, take: Callable[[], None], restore: Callable[[], None]) -> None:
    """Take a backup while senders send, restore it, and look for all that was acknowledged."""
    ledger = Ledger()
    ledger.expect(20)
    with Serving(store, "--insecure-no-auth", "--workers", "2") as serving:
        doors = [partial(over_http, serving.http), partial(over_grpc, serving.grpc)]
        threads = [
            threading.Thread(target=sending, args=(ledger, door, number))
            for number, door in enumerate(doors)
        ]
        for thread in threads:
            thread.start()
        assert ledger.enough.wait(60)
        with ledger.lock:
            before = list(ledger.acknowledged)
        links = runs(serving)
        take()
        with ledger.lock:
            after = len(ledger.acknowledged)
        ledger.stopping.set()
        for thread in threads:
            thread.join(60)
        capabilities = requests.get(
            f"{serving.endpoint}/v1/flowmark/capabilities", timeout=30
        ).json()
    assert after > len(before)  # it was taken under load
    restore()
    with Serving(copy, "--insecure-no-auth") as restored:
        for start in range(0, len(before), 1000):
            asked = {"eventIds": before[start : start + 1000]}
            url = f"{restored.endpoint}/v1/flowmark/status"
            events = requests.post(url, json=asked, timeout=30).json()["events"]
            assert {event["state"] for event in events} == {"stored"}
        assert links.items() <= runs(restored).items()
        for key in list(links)[:10]:
            page = requests.get(f"{restored.endpoint}/runs/{key}", timeout=30)
            assert page.status_code == 200
        url = f"{restored.endpoint}/v1/flowmark/capabilities"
        assert requests.get(url, timeout=30).json() == capabilities
        assert sends_again(restored)


def sends_again(restored: Serving) -> bool:
    """Whether a restored store takes new evidence: its ids go on after those it holds."""
    answer = restored.post("traces", traces_protobuf(batch(random.Random(1_000))), PROTOBUF)
    return receipt.decode(answer.content, "protobuf").stored == 2 * SPANS


@pytest.mark.timeout(120)
@pytest.mark.needs("sqlite3")
def test_a_backup_under_load_has_all_that_was_acknowledged_before_it(tmp_path: Path) -> None:
    """I1, D5: the documented command; ``serve`` starts on it; links to runs stay what they are."""
    store, copy = tmp_path / "s.db", tmp_path / "copy.db"
    places = {"/var/lib/flowmark/flowmark.db": str(store), "/backup/flowmark.db": str(copy)}
    check(store, copy, lambda: run(SQLITE, **places), lambda: None)


@pytest.mark.timeout(120)
@pytest.mark.needs("psql", "pg_dump", "pg_restore")
def test_a_dump_under_load_has_all_that_was_acknowledged_before_it(
    tmp_path: Path, postgres: Cluster
) -> None:
    """I1, D5: the same of PostgreSQL, by the two documented commands, into a new database."""
    store, copy = postgres.database(), postgres.database()
    dump = str(tmp_path / "flowmark.dump")
    places = {"DATABASE": store, "NEW": copy, "flowmark.dump": dump}
    check(store, copy, lambda: run(DUMP, **places), lambda: run(RESTORE, **places))
