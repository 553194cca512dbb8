"""SIGKILL of a process that is writing (fault row 1; I1, I2)."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from flowmark_otel.backend.status import states
from flowmark_otel.backend.store import Store, open_store

TURNS = 5
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """I1: what was acknowledged before a SIGKILL is readable after it, every time."""
    url = f"sqlite:///{tmp_path}/store.db"
    chance = random.Random(7)
    acknowledged: list[str] = []
    for turn in range(1, TURNS + 1):
        acknowledged += killed_while_writing(url, turn, chance.randint(1, 2000))
        store = open_store(url)
        assert missing(store, acknowledged) == []
        with store.engine.connect() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
        store.close()


def killed_while_writing(url: str, turn: int, lines: int) -> list[str]:
    """The ids that a process acknowledged before it was killed in mid-flight."""
    command = [sys.executable, "-m", "tests.support.submitter", url, str(turn)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        found = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        found += child.stdout.readlines()
    assert child.returncode == -9
    return [line.strip() for line in found if line.endswith("\n")]


def missing(store: Store, ids: list[str]) -> list[str]:
    """Those of the ids that the store does not hold."""
    return [
        event_id
        for start in range(0, len(ids), 1000)
        for event_id, state, _, _ in states(store, 1, "server", ids[start : start + 1000])
        if state != "stored"
    ]
