"""Children of ``multiprocessing`` by each start method, and pools of them (docs/processes.md)."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.process_apps import HOOKS
from tests.support.process_models import APPS, deliver, starting
from tests.support.serving import Serving

pytestmark = pytest.mark.timeout(120)
METHODS = ("fork", "forkserver", "spawn")
WAYS = ("process", "executor", "closed pool")
CHILDREN = (sys.executable, str(APPS / "children.py"))


@pytest.mark.parametrize("method", METHODS)
def test_children_deliver_at_their_end(method: str, serving: Serving, tmp_path: Path) -> None:
    """A22: a child process, one of an executor and one of a closed pool flush at their end."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(starting([*CHILDREN, method, way], tmp_path / way, serving))
            for way in WAYS
        ]
        for each in started:
            each.wait_for(HOOKS)  # the child's: the parent waits for it
            each.open()
        for each in started:
            assert each.ended() == 0, each.read()
            # The child's and the parent's; a spawned child runs those of the interpreter as well.
            assert each.hooks() == (3 if method == "spawn" else 2)
            assert each.recorded() == ["child", "parent"]


def test_children_that_are_terminated_need_a_spool(serving: Serving, tmp_path: Path) -> None:
    """E1: a pool that is left while its children work ends them by SIGTERM: what waits is lost.

    In a spool it is kept; the parent, which ends in an orderly way, delivers it as well.
    """
    command = [*CHILDREN, "fork", "pool"]
    spool = str(tmp_path / "spool")
    with (
        starting(command, tmp_path / "lost", serving) as lost,
        starting(command, tmp_path / "kept", serving, FLOWMARK_SPOOL_DIR=spool) as kept,
    ):
        for each in (lost, kept):
            each.wait_for(HOOKS)  # the parent's: its child is gone
            each.open()
            assert (each.ended(), each.hooks()) == (0, 1)
        deliver(tmp_path / "spool", tmp_path, serving)
        assert (lost.recorded(), kept.recorded()) == (["parent"], ["child", "parent"])
