"""Programs that end by themselves or by a signal (docs/processes.md)."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.process_apps import HOOKS
from tests.support.process_models import APPS, deliver, starting
from tests.support.serving import Serving

SCRIPT = (sys.executable, str(APPS / "script.py"))

ORDERLY = {"its end": 0, "sys.exit": 3, "exception": 1, "SIGINT": 1, "SIGTERM handled": 0}
ABRUPT = {"SIGTERM": -15, "os._exit": 3, "SIGKILL": -9}

pytestmark = pytest.mark.timeout(120)


def test_an_end_that_runs_hooks_delivers(serving: Serving, tmp_path: Path) -> None:
    """A22: the end, an exit, an exception, an interrupt and a handled SIGTERM flush."""
    with ExitStack() as stack:
        started = {
            way: stack.enter_context(starting([*SCRIPT, way], tmp_path / str(number), serving))
            for number, way in enumerate(ORDERLY)
        }
        for each in started.values():
            each.wait_for(HOOKS)
            each.open()
        codes = {way: each.ended() for way, each in started.items()}
        # CPython forgets that an interrupt ended it where its exit hooks import modules.
        codes["SIGINT"] = abs(codes["SIGINT"]) // 2 or 1
        assert codes == ORDERLY
        assert [each.recorded() for each in started.values()] == [["script"]] * len(ORDERLY)


def test_an_abrupt_end_needs_a_spool(serving: Serving, tmp_path: Path) -> None:
    """E1: SIGTERM by default, os._exit and SIGKILL run no hooks: what waits is lost.

    What is in a spool is delivered by the next process with that folder.
    """
    with ExitStack() as stack:
        lost, spooled = (
            {
                way: stack.enter_context(
                    starting([*SCRIPT, way], tmp_path / f"{kind}{number}", serving, **env)
                )
                for number, way in enumerate(ABRUPT)
            }
            for kind, env in (("lost", {}), ("kept", {"FLOWMARK_SPOOL_DIR": str(tmp_path / "s")}))
        )
        for started in (lost, spooled):
            assert {way: each.ended() for way, each in started.items()} == ABRUPT
            assert [each.hooks() for each in started.values()] == [0, 0, 0]
            for each in started.values():
                each.open()
        deliver(tmp_path / "s", tmp_path, serving)
        assert [each.recorded() for each in lost.values()] == [[], [], []]
        assert [each.recorded() for each in spooled.values()] == [["script"]] * 3
