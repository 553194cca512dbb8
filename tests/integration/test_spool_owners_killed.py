"""Fault row 2: a collector and an application, each with a spool, killed over and over."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import orjson
import pytest
import requests

from flowmark_otel import names
from flowmark_otel.wire import receipt
from tests.support.chaos import chaos
from tests.support.collecting import configuration, process
from tests.support.fleet import until
from tests.support.killing import SPANS, TYPE, Ledger, ids_of, over_grpc, over_http, sending
from tests.support.otlp import traces_protobuf
from tests.support.programs import environment, run
from tests.support.serving import Asking, Serving
from tests.support.spooling import segments

NOWHERE: Final = "127.0.0.1:9"
KILLS: Final = (4, 100)
"""How often, in CI and in a long campaign."""

# A line is so long that few of them fit into the pipe: it waits for who reads them.
RECORDING: Final = """
import itertools, os
import flowmark_otel as flowmark
flow = flowmark.workflow("killed")
for number in itertools.count(1):
    flow.operation("o", attempt=flowmark.Attempt("g{turn}", number)).complete()
    os.write(1, b"%d".ljust(512) % number + b"\\n")
"""

LAST: Final = """
import flowmark_otel as flowmark
flowmark.workflow("last").done()
flowmark.shutdown(120)
"""


@pytest.mark.timeout(3600)
def test_a_killed_collector_loses_nothing_it_took(
    tmp_path: Path, campaign: Callable[[int, int], int]
) -> None:
    """Row 2, I1, I2, I4, I8: what it told to be in custody is stored, once, and the sum is exact.

    In every other round its backend is away, so that it is killed with a full spool and while it
    recovers; requests it never answered are sent again.
    """
    ledger = Ledger(names.CUSTODY)
    chance = random.Random(22)
    store = tmp_path / "s.db"
    with chaos(NOWHERE) as proxy, Serving(store, "--insecure-no-auth") as backend:
        file = configuration(f"http://{proxy.address}", spool=tmp_path / "spool")
        for turn in range(campaign(*KILLS)):
            proxy.redirect(backend.http)
            with process(file, tmp_path) as collector:
                if turn % 2:
                    proxy.redirect(NOWHERE)
                    proxy.cut()
                ledger.expect(chance.randrange(4, 40))
                threads = [
                    threading.Thread(target=sending, args=(ledger, door, 2 * turn + number))
                    for number, door in enumerate(
                        [partial(over_http, collector.http), partial(over_grpc, collector.grpc)]
                    )
                ]
                for thread in threads:
                    thread.start()
                assert ledger.enough.wait(60)
                collector.kill()
                for thread in threads:
                    thread.join(60)
        sent = set(ledger.acknowledged)
        assert len(sent) == len(ledger.acknowledged)
        proxy.redirect(backend.http)
        with process(file, tmp_path) as collector:
            for spans in ledger.unanswered:
                body = traces_protobuf(spans)
                answer = Asking(collector.http).post("traces", body, TYPE["content-type"])
                assert receipt.decode(answer.content, "protobuf").custody == 2 * SPANS
                sent.update(ids_of(spans))
            assert collector.stop() == 0
        with process(file, tmp_path):
            until(lambda: not segments(tmp_path / "spool"), 600)
        assert states(backend, sorted(sent)) == {names.STORED: len(sent)}
    assert len(events(store)) == len(sent)


@pytest.mark.timeout(3600)
def test_a_killed_application_loses_nothing_it_recorded(
    tmp_path: Path, campaign: Callable[[int, int], int]
) -> None:
    """E1, row 2, I1, I2, I4, I8: what a recording call returned for is stored by later processes.

    Start and end of each attempt are there once; on top comes at most the one attempt that was
    under way at each kill. In every other round the backend is away.
    """
    chance = random.Random(23)
    store, spool = tmp_path / "s.db", tmp_path / "spool"
    said: set[tuple[str, int]] = set()
    kills = campaign(*KILLS)
    with chaos(NOWHERE) as proxy, Serving(store, "--insecure-no-auth") as backend:
        env = environment(
            tmp_path,
            None,
            FLOWMARK_ENDPOINT=f"http://{proxy.address}",
            FLOWMARK_SPOOL_DIR=str(spool),
        )
        for turn in range(kills):
            proxy.redirect(NOWHERE if turn % 2 else backend.http)
            numbers = killed_recording(turn, env, chance.randrange(1, 400))
            said.update((f"g{turn}", number) for number in numbers)
        proxy.redirect(backend.http)
        told = run(tmp_path, LAST, env, timeout=150).stderr.splitlines()
    # A kill in the midst of a write leaves a torn record, of which nothing was said.
    assert {line.partition(":")[0] for line in told} <= {names.DIAGNOSTIC_SPOOL_DAMAGED}
    assert segments(spool) == []
    found = events(store)
    attempts = Counter(
        (str(each[names.ATTEMPT_GROUP_ID]), int(str(each[names.ATTEMPT_NUMBER])))
        for each in found
        if names.ATTEMPT_GROUP_ID in each
    )
    assert {each for each in said if attempts[each] != 2} == set()
    assert len(attempts.keys() - said) <= kills
    assert max(attempts.values()) == 2
    # Beside attempts: the start of each killed run, and the last run whole.
    assert len(found) - attempts.total() == kills + 2


def killed_recording(turn: int, env: dict[str, str], lines: int) -> list[int]:
    """The numbers that an application had recorded when it was killed in the midst of more."""
    command = [sys.executable, "-c", RECORDING.format(turn=turn)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdout is not None
        found = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        found += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    return [int(line) for line in found if line.endswith("\n")]


def states(backend: Serving, event_ids: list[str]) -> dict[str, int]:
    """How many of these events are in which state."""
    found: Counter[str] = Counter()
    for start in range(0, len(event_ids), 1000):
        asked = {"eventIds": event_ids[start : start + 1000]}
        answer = requests.post(f"{backend.endpoint}/v1/flowmark/status", json=asked, timeout=30)
        found.update(each["state"] for each in answer.json()["events"])
    return dict(found)


def events(store: Path) -> list[dict[str, object]]:
    """The attributes of all events in a store."""
    with closing(sqlite3.connect(store)) as connection:
        return [orjson.loads(row[0]) for row in connection.execute("select attributes from events")]
