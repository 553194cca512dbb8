"""Workers of Celery, in processes and in threads (docs/processes.md)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from celery import Celery

from tests.support.process_apps import HOOKS
from tests.support.process_models import BIN, Started, deliver, starting
from tests.support.serving import Serving

pytestmark = pytest.mark.timeout(120)
TASKS = "tests.support.process_apps.tasks"


@contextmanager
def worker(pool: str, folder: Path, serving: Serving, **env: str) -> Iterator[Started]:
    """A worker that has run two tasks."""
    broker = folder.with_name(f"{folder.name}-broker")
    for name in ("messages", "control"):
        (broker / name).mkdir(parents=True)
    options = ["--concurrency", "2", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    command = [str(BIN / "celery"), "-A", TASKS, "worker", "--pool", pool, *options, "-l", "info"]
    with starting(command, folder, serving, BROKER_FOLDER=str(broker), **env) as started:
        sender = Celery("sender", broker="filesystem://", set_as_current=False)
        sender.conf.broker_transport_options = {
            "data_folder_in": str(broker / "messages"),
            "data_folder_out": str(broker / "messages"),
            "control_folder": str(broker / "control"),
        }
        for run_id in ("one", "two"):
            sender.send_task("record", args=[run_id])
        started.wait_for("succeeded", 2)
        yield started


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_stop_delivers_and_a_spool_survives_a_kill(
    pool: str, serving: Serving, tmp_path: Path
) -> None:
    """A22, E1: a warm shutdown delivers, from children too where they are told to flush."""
    spool = tmp_path / "spool"
    with (
        worker(pool, tmp_path / "stopped", serving, FLUSH_AT_THE_END="1") as stopped,
        worker(pool, tmp_path / "killed", serving, FLOWMARK_SPOOL_DIR=str(spool)) as killed,
    ):
        killed.kill()
        killed.open()
        stopped.signal(signal.SIGTERM)
        stopped.wait_for(HOOKS)
        stopped.open()
        assert stopped.ended() == 0
        deliver(spool, tmp_path, serving)
        assert stopped.recorded() == ["one", "two"]
        assert killed.recorded() == ["one", "two"]


def test_children_that_are_not_told_lose_what_waits(serving: Serving, tmp_path: Path) -> None:
    """A22: children of the prefork pool run no exit hooks: without a flush what waits is lost."""
    with worker("prefork", tmp_path / "stopped", serving) as stopped:
        stopped.signal(signal.SIGTERM)
        stopped.wait_for(HOOKS)  # of the process that started them, when they are gone
        stopped.open()
        assert stopped.ended() == 0
        assert stopped.hooks() == 1
        assert stopped.recorded() == []
