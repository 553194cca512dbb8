"""The in-memory backend: judged by the contract's table, read with the backend's own folding."""

from __future__ import annotations

import random
import sys

import pytest

from flowmark_otel import names
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Delivery
from flowmark_otel.errors import DeliveryError
from flowmark_otel.model import Envelope, RunRef
from flowmark_otel.testing import FakeClock, InMemoryBackend
from flowmark_otel.testing.judging import BackendJudge, CoreJudge, best_judge
from tests.support.envelopes import completed, failed, observed, run_event, started

RESOURCE = {"service.name": "crm-sync"}
MAKERS = (started, completed, failed)


def history(seed: int) -> list[Envelope]:
    """Events over few ids, names, groups and spans, so that every row of the table is met."""
    chance = random.Random(seed)
    events: list[Envelope] = []
    for _ in range(40):
        number = chance.randrange(1, 6)
        given = {
            "operation_id": f"op-{chance.randrange(4)}",
            "operation": chance.choice(("push", "pull")),
            "run": chance.choice(("r1", "r2")),
        }
        attempt = chance.choice((None, ("g1", 1), ("g1", 2), ("g2", 1)))
        if chance.random() < 0.1:
            events.append(observed(number, chance.randrange(1, 3), **given))
        elif chance.random() < 0.1:
            events.append(run_event(names.RUN_STARTED, number, run=given["run"]))
        else:
            limit = {"limit": chance.choice((2, 3))} if attempt and chance.random() < 0.3 else {}
            events.append(chance.choice(MAKERS)(number, attempt, **given, **limit))
    return events


@pytest.mark.parametrize("seed", range(40))
def test_both_judges_rule_alike(seed: int) -> None:
    """A25: without the server extra the same table is applied, event by event."""
    real, core = BackendJudge(), CoreJudge()
    events = history(seed)
    rulings = [real.judge(event) for event in events]
    assert [core.judge(event).state for event in events] == [each.state for each in rulings]


def test_histories_meet_every_row() -> None:
    """A25: the histories that the judges are compared on hold all outcomes, and each conflict."""
    judges = [(CoreJudge(), history(seed)) for seed in range(40)]
    rulings = [judge.judge(event) for judge, events in judges for event in events]
    assert {each.state for each in rulings} == {names.STORED, names.DUPLICATE, names.CONFLICT}
    messages = {each.message for each in rulings}
    assert {"operation was ended by another span", ""} < messages
    assert any(message.startswith("attempt 1 of this group") for message in messages)
    assert any(message.startswith("operation id was accepted with the") for message in messages)
    assert any(message.startswith("event id was accepted") for message in messages)


def test_the_real_judge_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A25: the backend's own judge is used where it can be imported, the core's where not."""
    assert isinstance(best_judge(), BackendJudge)
    for name in [name for name in sys.modules if name.startswith("flowmark_otel.backend")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "orjson", None)
    monkeypatch.delattr("flowmark_otel.backend")
    assert isinstance(best_judge(), CoreJudge)


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
@pytest.mark.parametrize("judge", [BackendJudge, CoreJudge])
def test_what_is_delivered_can_be_read(encoding: str, judge: type) -> None:
    """A1, A9: attempts, their order, gaps and verdict are read as the backend reads them."""
    backend = InMemoryBackend(encoding, clock=FakeClock(), judge=judge())
    delivery = Delivery(ClientOptions(), transport=backend)
    delivery.put(
        [
            run_event(names.RUN_STARTED, 9, retry_workflow="crm.sync", retry_run="run-0"),
            started(3, ("g", 3)),
            failed(1, ("g", 1), code="CRM_UNAVAILABLE", duration=7),
            completed(3, ("g", 3)),
            started(4),
            run_event(names.RUN_COMPLETED, 9, outcome="complete"),
        ],
        RESOURCE,
    )
    delivery.shutdown(10)
    run = backend.run("crm.sync", "run-1")
    [group] = run.groups
    assert [(each.number, each.status) for each in group.attempts] == [
        (1, "failed"),
        (3, "completed"),
    ]
    assert (group.verdict, group.gaps) == ("after_retry", ((2, 2),))
    assert (run.status, run.outcome, run.retry_of) == (
        "completed",
        "complete",
        RunRef("crm.sync", "run-0"),
    )


def test_a_conflict_is_answered_as_the_contract_says() -> None:
    """A6: a second record of one attempt is rejected by name, and its place is in conflict."""
    backend = InMemoryBackend()
    delivery = Delivery(ClientOptions(), transport=backend)
    delivery.put([completed(1, ("g", 1))], RESOURCE)
    delivery.flush(10)
    delivery.put([failed(2, ("g", 1)), *(completed(number) for number in range(3, 8))], RESOURCE)
    with pytest.raises(DeliveryError, match="conflict"):
        delivery.flush(10)
    assert delivery.counts() == {
        (names.STORED, ""): 6,
        (names.CONFLICT, names.REASON_REJECTED): 1,
    }
    [group] = backend.run().groups
    assert (group.conflicts, group.attempts[0].status) == ((1,), "completed")
    assert [each.code for each in backend.rejections] == [names.CONFLICT]
    delivery.shutdown(10)


def test_more_rejections_than_a_receipt_names() -> None:
    """A22: what the receipt has no room for is learnt from the status of each event."""
    backend = InMemoryBackend()
    delivery = Delivery(ClientOptions(), transport=backend)
    delivery.put([completed(number, ("g", number)) for number in range(1, 41)], RESOURCE)
    delivery.flush(10)
    delivery.put([completed(50 + number, ("g", number)) for number in range(1, 41)], RESOURCE)
    assert not delivery.try_flush(10)
    assert delivery.counts()[names.CONFLICT, names.REASON_REJECTED] == 40
    delivery.shutdown(10)


def test_a_second_arrival_is_a_duplicate() -> None:
    """A8: the same event again is stored once."""
    backend = InMemoryBackend()
    delivery = Delivery(ClientOptions(), transport=backend)
    delivery.put([started(1, ("g", 1)), started(1, ("g", 1))], RESOURCE)
    delivery.shutdown(10)
    assert delivery.counts() == {(names.STORED, ""): 1, (names.DUPLICATE, ""): 1}


def test_a_backend_can_be_as_stock_servers_are() -> None:
    """A21: without receipt attempts are unacknowledged and ordinary operations accepted."""
    backend = InMemoryBackend()
    backend.acknowledges = False
    delivery = Delivery(ClientOptions(), transport=backend)
    delivery.put([started(1, ("g", 1)), started(2)], RESOURCE)
    assert not delivery.try_flush(10)
    backend.acknowledges = True
    delivery.put([completed(1, ("g", 1))], RESOURCE)
    delivery.shutdown(10)
    assert delivery.counts() == {
        (names.UNACKNOWLEDGED, names.REASON_UNACKNOWLEDGED): 1,
        (names.ACCEPTED, ""): 1,
        (names.STORED, ""): 1,
    }


def test_an_unavailable_backend_delivers_later() -> None:
    """A22: what waits counts as not acknowledged, and is delivered when the backend is there."""
    backend = InMemoryBackend()
    backend.available = False
    delivery = Delivery(ClientOptions(), transport=backend)
    delivery.put([started(1, ("g", 1))], RESOURCE)
    assert not delivery.try_flush(0.1)
    backend.available = True
    delivery.flush(10)
    assert backend.run().groups[0].verdict == "open"
    delivery.shutdown(10)


def test_a_body_that_is_none_is_refused() -> None:
    """A22: what cannot be parsed is no success."""
    answer = InMemoryBackend().send(b"\xff", "application/x-protobuf", 1)
    assert answer.status == 400


def test_no_single_run_shows_all_runs() -> None:
    """A25: asking for one run where there are others shows what there is."""
    backend = InMemoryBackend()
    with pytest.raises(AssertionError, match="nothing was recorded"):
        backend.run("crm.sync")
    delivery = Delivery(ClientOptions(), transport=backend)
    delivery.put([started(1, ("g", 1), run="a"), started(2, ("g", 1), run="b")], RESOURCE)
    delivery.shutdown(10)
    with pytest.raises(
        AssertionError, match=r"2 runs with workflow 'crm\.sync'(.|\n)*'a'(.|\n)*'b'"
    ):
        backend.run("crm.sync")
