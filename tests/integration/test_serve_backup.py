"""A backup taken while ``serve`` is at work, and what is restored from it."""

from __future__ import annotations

import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest
import requests

from tests.integration.test_serve_killed import Ledger, over_grpc, over_http, sending
from tests.support.serving import Serving

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "sqlite3 /var/lib/flowmark/flowmark.db \"VACUUM INTO '/backup/flowmark.db'\""


def runs(serving: Serving) -> dict[str, str]:
    """The run id behind each run's link."""
    return {run["key"]: run["run_id"] for run in serving.get("/runs", limit=200)["items"]}


@pytest.mark.needs("sqlite3")
def test_a_backup_under_load_has_all_that_was_acknowledged_before_it(tmp_path: Path) -> None:
    """I1, D5: the documented command; ``serve`` starts on it; links to runs stay what they are."""
    assert COMMAND in (ROOT / "docs" / "operations.md").read_text("utf-8")
    store, copy = tmp_path / "s.db", tmp_path / "copy.db"
    command = COMMAND.replace("/var/lib/flowmark/flowmark.db", str(store))
    command = command.replace("/backup/flowmark.db", str(copy))
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
        subprocess.run(["sh", "-c", command], check=True, timeout=50)
        with ledger.lock:
            after = len(ledger.acknowledged)
        ledger.stopping.set()
        for thread in threads:
            thread.join(60)
        capabilities = requests.get(
            f"{serving.endpoint}/v1/flowmark/capabilities", timeout=30
        ).json()
    assert after > len(before)  # it was taken under load
    with Serving(copy, "--insecure-no-auth") as restored:
        for start in range(0, len(before), 1000):
            asked = {"eventIds": before[start : start + 1000]}
            url = f"{restored.endpoint}/v1/flowmark/status"
            events = requests.post(url, json=asked, timeout=30).json()["events"]
            assert {event["state"] for event in events} == {"stored"}
        assert links.items() <= runs(restored).items()
        for key in links:
            page = requests.get(f"{restored.endpoint}/runs/{key}", timeout=30)
            assert page.status_code == 200
        url = f"{restored.endpoint}/v1/flowmark/capabilities"
        assert requests.get(url, timeout=30).json() == capabilities
