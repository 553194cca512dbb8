"""The examples that use the package, run as their README says; the result is read back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.programs import Recorded, environment
from tests.support.serving import Serving

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A backend with keys."""
    with Serving(tmp_path / "s.db") as found:
        yield found


def run_example(name: str, folder: Path, serving: Serving) -> list[str]:
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env=environment(folder, serving),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_explicit_attempts(serving: Serving, tmp_path: Path) -> None:
    """A27: manual and callback recovery of the push, and recovery of the partial booking."""
    printed = run_example("explicit_attempts.py", tmp_path, serving)
    manual, callback, partial, recovery = [line.split()[-1] for line in printed]
    recorded = Recorded(serving)
    for run_id in (manual, callback):
        [synced] = recorded.runs(run_id=run_id)
        assert (synced["status"], synced["outcome"]) == ("completed", "complete")
        assert synced["result"] == {"imported": 3}
        assert recorded.attempts(synced) == [
            ("push-to-crm", "customer-batch-42", 1, "failed", "CRM_UNAVAILABLE"),
            ("push-to-crm", "customer-batch-42", 2, "completed", None),
        ]
    [before] = recorded.runs(run_id=partial)
    assert (before["status"], before["outcome"]) == ("failed", "partial")
    assert before["result"] == {"confirmed": 2, "remaining": 1}
    assert before["error"]["code"] == "PROVIDER_UNAVAILABLE"
    statuses = [status for _, status in recorded.operations(before)]
    assert sorted(statuses) == ["completed", "completed", "failed"]
    assert recorded.attempts(before) == []
    [after] = recorded.runs(run_id=recovery)
    assert (after["status"], after["result"]) == ("completed", {"confirmed": 1, "remaining": 0})
    assert after["retry_of"]["run_id"] == partial
    assert after["retry_of"]["resolved"] is True
    assert recorded.attempts(after) == [("confirm-remaining", "third", 1, "completed", None)]


def test_asyncio_service(serving: Serving, tmp_path: Path) -> None:
    """A26: runs and attempts of tasks that run at once stay apart; a cancelled try has failed."""
    printed = run_example("asyncio_service.py", tmp_path, serving)
    assert printed == ["imported 6 customers in 3 runs"]
    recorded = Recorded(serving)
    runs = recorded.runs(workflow="crm.sync")
    assert sorted(run["status"] for run in runs) == ["completed"] * 3 + ["failed"]
    for run in runs:
        attempts = recorded.attempts(run)
        [group] = {attempt[1] for attempt in attempts}
        found = [attempt[2:4] for attempt in attempts]
        if group == "slow":
            assert found == [(1, "failed")]
            assert str(attempts[0][4]).endswith("CancelledError")
        else:
            assert found == [(1, "failed"), (2, "completed")]
            assert run["result"] == {"imported": int(group[-1])}
