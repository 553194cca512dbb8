"""Programs under gevent (docs/processes.md)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.process_apps import HOOKS
from tests.support.process_models import APPS, deliver, starting
from tests.support.serving import Serving

pytestmark = pytest.mark.timeout(120)
PROGRAM = (sys.executable, str(APPS / "greenlets.py"))


def test_greenlets_record_and_the_hub_turns(serving: Serving, tmp_path: Path) -> None:
    """A22, E1: sending is a greenlet like others; the end delivers, and a spool survives a kill."""
    spool = tmp_path / "spool"
    with (
        starting(PROGRAM, tmp_path / "ended", serving) as ended,
        starting(PROGRAM, tmp_path / "killed", serving, FLOWMARK_SPOOL_DIR=str(spool)) as killed,
    ):
        for each in (ended, killed):
            each.wait_for("turned")
        killed.kill()
        killed.open()
        ended.say("end")
        ended.wait_for(HOOKS)
        ended.open()
        assert ended.ended() == 0
        deliver(spool, tmp_path, serving)
        assert ended.recorded() == ["one", "two"]
        assert killed.recorded() == ["one", "two"]
