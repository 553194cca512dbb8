"""How programs end: what they say of what they lost, and what they deliver for dead ones."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.support.answers import Reply, answering, free_port
from tests.support.programs import environment, run
from tests.support.serving import Serving
from tests.support.spooling import segments

ONE_RUN: Final = """
import flowmark_otel as flowmark
flow = flowmark.workflow("w")
flow.operation("o", attempt=flowmark.Attempt("g", 1)).complete()
flow.done()
"""

KILLED: Final = """
import os, signal
import flowmark_otel as flowmark
flow = flowmark.workflow("left")
for number in range(1, {operations} + 1):
    flow.operation("o", attempt=flowmark.Attempt("g", number)).complete()
flow.done()
os.kill(os.getpid(), signal.SIGKILL)
"""

BY_PROCESSOR: Final = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
import flowmark_otel as flowmark
provider = TracerProvider()
trace.set_tracer_provider(provider)
flowmark.configure(tracer_provider=provider, protocol="http/json")
with flowmark.workflow("w"):
    pass
assert not provider.force_flush(20000)
"""

TOLD: Final = """
try:
    flowmark.shutdown(0.5)
except flowmark.DeliveryError as error:
    print(error)
"""


def said_at_exit(stderr: str) -> list[str]:
    """The lines that the end of the interpreter added."""
    return [line for line in stderr.splitlines() if line.startswith("at exit: ")]


def test_the_exit_says_that_nobody_answered(tmp_path: Path) -> None:
    """A22: events that a silent server never acknowledged are told in one line; the code stays."""
    never = threading.Event()
    with answering(Reply(after=never)) as server:
        env = environment(tmp_path, None, FLOWMARK_ENDPOINT=server.endpoint)
        done = run(tmp_path, ONE_RUN + "raise SystemExit(3)\n", env, check=False)
        never.set()
    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    assert line.startswith("at exit: 4 of 4 events were not acknowledged: 4 queued, timeout (run-")


def test_the_exit_says_that_nobody_was_there(tmp_path: Path) -> None:
    """A22: with a closed port one line at exit tells how many were lost; the code stays."""
    env = environment(tmp_path, None, FLOWMARK_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    done = run(tmp_path, ONE_RUN + "raise SystemExit(3)\n", env, check=False)
    assert done.returncode == 3
    [line] = said_at_exit(done.stderr)
    assert line.startswith(
        "at exit: 4 of 4 events were not acknowledged: 4 queued, unavailable (run-"
    )


def test_the_exit_says_what_no_error_told(tmp_path: Path) -> None:
    """A22: what only a force_flush judged, whose answer nobody may read, is told at exit."""
    with answering(Reply(200)) as server:
        env = environment(tmp_path, None, FLOWMARK_ENDPOINT=server.endpoint)
        done = run(tmp_path, BY_PROCESSOR, env)
    [line] = said_at_exit(done.stderr)
    assert line.startswith("at exit: 2 of 2 events were not acknowledged: 2 ")


@pytest.mark.parametrize("spooled", ["spool", ""])
def test_what_shutdown_told_is_not_told_again(tmp_path: Path, spooled: str) -> None:
    """A22: the exit is silent about events that a DeliveryError of shutdown spoke of."""
    env = environment(tmp_path, None, FLOWMARK_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    if spooled:
        env["FLOWMARK_SPOOL_DIR"] = str(tmp_path / spooled)
    done = run(tmp_path, ONE_RUN + TOLD, env)
    assert done.stdout.startswith("4 of 4 events were not acknowledged")
    assert said_at_exit(done.stderr) == []


def test_a_spawned_child_says_it_once(tmp_path: Path) -> None:
    """A22: a child of multiprocessing, which ends twice over, tells of its losses in one line."""
    env = environment(tmp_path, None, FLOWMARK_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    program = """
import multiprocessing
import flowmark_otel as flowmark

def child():
    flowmark.workflow("of the child").done()

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
"""
    [line] = said_at_exit(run(tmp_path, program, env).stderr)
    assert line.startswith("at exit: 2 of 2 events were not acknowledged")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("operations", "end"), [(2499, "flowmark.shutdown()\n"), (999, "")], ids=["shutdown", "exit"]
)
def test_a_short_process_empties_the_spool_of_a_killed_one(
    tmp_path: Path, operations: int, end: str
) -> None:
    """E1, I8: all that a killed process left is stored by one later one, however short it is."""
    spool, store = tmp_path / "spool", tmp_path / "s.db"
    nobody = f"http://127.0.0.1:{free_port()}"
    dead = environment(tmp_path, None, FLOWMARK_SPOOL_DIR=str(spool), FLOWMARK_ENDPOINT=nobody)
    killed = run(tmp_path, KILLED.format(operations=operations), dead, check=False)
    assert killed.returncode == -9
    with Serving(store) as serving:
        env = environment(tmp_path, serving, FLOWMARK_SPOOL_DIR=str(spool))
        assert run(tmp_path, ONE_RUN + end, env).stderr == ""
    with closing(sqlite3.connect(store)) as connection:
        [stored] = connection.execute("select count(*) from events").fetchone()
    assert stored == 2 + 2 * operations + 4
    assert len(segments(spool)) == int(not end)  # its own, done with: at exit nothing is closed
