"""A platform that freezes processes between calls, such as AWS Lambda (docs/processes.md)."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.support.process_models import APPS, deliver, starting
from tests.support.serving import Serving

pytestmark = pytest.mark.timeout(120)
HANDLER = (sys.executable, str(APPS / "handler.py"))


def test_a_flush_at_the_end_of_a_call_leaves_nothing_behind(
    serving: Serving, tmp_path: Path
) -> None:
    """A22: what a call has flushed is stored although its process is frozen, and never goes on."""
    with starting(HANDLER, tmp_path / "flushing", serving) as started:
        started.open()
        started.say("one flush")
        started.wait_for("delivered")
        started.signal(signal.SIGSTOP)
        assert started.recorded() == ["one"]


def test_without_a_flush_it_waits_for_the_thaw(serving: Serving, tmp_path: Path) -> None:
    """A22: what waits when the process is frozen is delivered after the thaw, each event once."""
    with starting(HANDLER, tmp_path / "waiting", serving) as started:
        started.say("one")
        started.wait_for("recorded")
        started.signal(signal.SIGSTOP)
        started.open()
        assert started.recorded() == []
        started.signal(signal.SIGCONT)
        started.say("two flush")
        started.wait_for("\ndelivered")
        assert started.recorded() == ["one", "two"]


def test_a_sandbox_that_is_taken_away(serving: Serving, tmp_path: Path) -> None:
    """E1: frozen and never thawed, only a spool keeps it, for whoever has that folder next."""
    spool = tmp_path / "spool"
    with (
        starting(HANDLER, tmp_path / "lost", serving) as lost,
        starting(HANDLER, tmp_path / "kept", serving, FLOWMARK_SPOOL_DIR=str(spool)) as kept,
    ):
        for each in (lost, kept):
            each.say("one")
            each.wait_for("recorded")
            each.signal(signal.SIGSTOP)
            each.kill()  # and its gate stays shut: there a request may still be under way
        deliver(spool, tmp_path, serving)
        assert (lost.recorded(), kept.recorded()) == ([], ["one"])
