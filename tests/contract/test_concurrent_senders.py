"""Many senders at once over both stores and both transports, two servers on one store.

Fault rows 11 to 13: the same, reordered, conflicting and duplicated events, from several threads
and through two server processes. The oracle is the same backend, given the history in one thread.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests

from flowmark_otel import names
from flowmark_otel.backend.views import jsonable
from flowmark_otel.fold import digest, fold_span
from flowmark_otel.model import Envelope, Receipt, Span
from tests.conftest import STORES
from tests.support.history import Ingested, attempt, ingested, run_of, span
from tests.support.otlp_calls import sender
from tests.support.serving import Asking, Serving

SENDERS = 6
RUNS = 5
ATTEMPTS = 6


class Sent(NamedTuple):
    """What the senders did: the receipts' sums, and each event that was sent, by its id."""

    receipts: list[Receipt]
    digests: dict[str, set[str]]
    servers: tuple[Serving, Serving]


def history() -> list[Span]:
    """Attempts and ends of several runs, and whatever contradicts them."""
    found: list[Span] = []
    for run in range(RUNS):
        run_id, base = f"r{run}", 100 * run
        for number in range(1, ATTEMPTS + 1):
            given = attempt("g", number, run_id=run_id, limit=ATTEMPTS)
            one = span(base + number, given, failed=number < ATTEMPTS)
            found.append(one)
            if number % 3 == 0:
                found.append(one._replace(failed=not one.failed))  # one event id, two payloads
            if number == 4:
                found.append(span(base + 50, given))  # one place, two operations
                found.append(one._replace(attributes={**given, names.OPERATION_NAME: "pull"}))
            if number == 5:  # one event id, two runs
                other = attempt("g", number, run_id=f"r{(run + 1) % RUNS}", limit=ATTEMPTS)
                found.append(one._replace(attributes=other))
        found.append(span(base + 60, run_of(run_id, retry_of=("crm.sync", f"r{run + 1}"))))
    return found


def events(spans: Sequence[Span]) -> Iterator[Envelope]:
    """The envelopes of spans."""
    for one in spans:
        yield from (event for event in fold_span(one) if isinstance(event, Envelope))


@pytest.fixture(scope="module", params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    return str(request.param)


@pytest.fixture(scope="module", params=["http", "grpc"])
def sent(
    request: pytest.FixtureRequest, new_store: Callable[[str], str], kind: str
) -> Iterator[Sent]:
    """Two servers on one store, after all senders have sent all of the history to both."""
    url = new_store(kind)
    barrier = threading.Barrier(SENDERS)
    with ExitStack() as stack:
        servers = (
            stack.enter_context(Serving(url, "--insecure-no-auth")),
            stack.enter_context(Serving(url, "--insecure-no-auth")),
        )

        def work(seed: int) -> list[tuple[Receipt, int]]:
            chance = random.Random(seed)
            spans = history()
            spans += chance.sample(spans, len(spans) // 4)
            chance.shuffle(spans)
            sends = [sender(one, request.param) for one in servers]
            barrier.wait(60)
            answers = []
            while spans:
                size = chance.randint(1, 12)
                part, spans = spans[:size], spans[size:]
                answers.append((chance.choice(sends)(part), len(list(events(part)))))
            return answers

        with ThreadPoolExecutor(SENDERS) as threads:
            answers = [each for found in threads.map(work, range(SENDERS)) for each in found]
        for receipt, count in answers:
            assert receipt.received == count
            assert receipt.received == receipt.stored + receipt.duplicate + receipt.rejected
        digests: dict[str, set[str]] = defaultdict(set)
        for event in events(history()):
            digests[event.event_id].add(digest(event).hex())
        yield Sent([receipt for receipt, _ in answers], digests, servers)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingested]:
    """The history, delivered in its order by one sender."""
    path: Path = tmp_path_factory.mktemp("oracle") / "store.db"
    with ingested(path) as found:
        for one in history():
            found.send(one)
        yield found


def read(server: Asking) -> dict[str, dict[str, Any]]:
    """All that a server says of each run, by run id."""
    found = {}
    for run in server.get("/runs", limit=500)["items"]:
        path = f"/runs/{run['key']}"
        found[run["run_id"]] = {
            "run": run,
            **{
                name: server.get(f"{path}/{name}", limit=500)["items"]
                for name in ("attempts", "operations", "events")
            },
        }
    return found


def statuses(server: Asking, ids: Sequence[str]) -> list[dict[str, Any]]:
    """What the status endpoint says of each id."""
    answer = requests.post(
        f"{server.endpoint}/v1/flowmark/status", json={"eventIds": list(ids)}, timeout=60
    )
    found: list[dict[str, Any]] = answer.json()["events"]
    return found


def verdicts(groups: dict[str, list[dict[str, Any]]]) -> set[tuple[object, ...]]:
    """Verdict, gaps and places in conflict of every group, by run id."""
    return {
        (run_id, one["operation"], one["group_id"], one["verdict"], str(one["gaps"]))
        for run_id, found in groups.items()
        for one in found
    }


def test_every_event_id_is_stored_once(sent: Sent) -> None:
    """I2, I4: whoever comes first, each id is stored once and everything is in the sums."""
    assert sum(one.stored for one in sent.receipts) == len(sent.digests) - refused_ids(sent)
    kept = {
        event["event_id"]
        for run in read(sent.servers[0]).values()
        for event in run["events"]
        if event["state"] == "stored"
    }
    assert len(kept) == sum(one.stored for one in sent.receipts)


def refused_ids(sent: Sent) -> int:
    """How many event ids have no payload that was accepted."""
    found = statuses(sent.servers[0], sorted(sent.digests))
    return sum(one["state"] == "rejected" for one in found)


def test_two_servers_answer_alike(sent: Sent) -> None:
    """D5: whatever server is asked, pages and status are those of one store."""
    one, other = map(read, sent.servers)
    assert one == other
    ids = sorted(sent.digests)
    assert statuses(sent.servers[0], ids) == statuses(sent.servers[1], ids)


def test_the_status_of_an_event_is_a_payload_that_was_sent(sent: Sent) -> None:
    """I3: the digest of a stored id is one of those sent; a refused one is a conflict."""
    for one in statuses(sent.servers[1], sorted(sent.digests)):
        assert one["digest"] in sent.digests[one["eventId"]]
        assert (one["state"], one["code"]) in (("stored", None), ("rejected", "conflict"))


def test_evidence_and_verdicts_are_those_of_one_sender(sent: Sent, oracle: Ingested) -> None:
    """A6, A10, row 12: the same evidence, places in conflict and verdicts as in any other order."""
    found = read(sent.servers[0])
    reader = oracle.reader
    runs = {run.run_id: run.key for run in reader.runs(1, limit=500).items}
    expected = {
        run_id: jsonable(reader.attempts(1, key, 500).items) for run_id, key in runs.items()
    }
    assert verdicts({run_id: one["attempts"] for run_id, one in found.items()}) == verdicts(
        expected
    )
    evidence = {
        (event["event_id"], event["digest"]) for one in found.values() for event in one["events"]
    }
    assert evidence == {
        (event_id, each) for event_id, known in sent.digests.items() for each in known
    }
    assert {run_id: one["run"]["status"] for run_id, one in found.items()} == {
        run.run_id: run.status for run in reader.runs(1, limit=500).items
    }
