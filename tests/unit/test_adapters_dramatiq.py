"""Dramatiq's own workers on its broker in memory; the same tests run with its oldest release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from dramatiq.errors import Retry
from dramatiq.middleware import Retries
from opentelemetry import context as otel

from flowmark_otel.adapters import recording
from flowmark_otel.adapters.dramatiq import DramatiqInstrumentor
from tests.support.adapting import Adapted, adapted

WAIT: Final = 20_000


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """The adapter on."""
    with adapted(DramatiqInstrumentor()) as found:
        yield found


@pytest.fixture
def broker() -> Iterator[StubBroker]:
    """A broker with nothing but retries, soon, and a worker."""
    made = StubBroker(middleware=[Retries(min_backoff=1, max_backoff=1, max_retries=2)])
    made.emit_after("process_boot")
    worker = dramatiq.Worker(made, worker_timeout=10, worker_threads=2)
    worker.start()
    yield made
    worker.stop()
    made.close()


def actor(broker: StubBroker, name: str, act: Callable[[], object], **options: Any) -> Any:
    """An actor of this broker."""

    def run() -> None:
        act()

    return dramatiq.actor(actor_name=name, broker=broker, **options)(run)


def failing(times: int, error: Callable[[], Exception]) -> Callable[[], None]:
    """What raises so many times."""
    calls = count(1)

    def act() -> None:
        if next(calls) <= times:
            raise error()

    return act


def done(broker: StubBroker) -> None:
    """Wait until all messages are processed, also in vain."""
    broker.join("default", fail_fast=False, timeout=WAIT)


def limits(recorded: Adapted) -> set[object]:
    """What the spans say of the runs allowed."""
    return {(span.attributes or {}).get("flowmark.attempt.limit") for span in recorded.spans}


def test_runs_of_a_message(recorded: Adapted, broker: StubBroker) -> None:
    """E3: runs are attempts of the message id, numbered by its retries; messages are groups."""
    sync = actor(broker, "crm.sync", failing(2, ValueError))
    first = sync.send()
    done(broker)
    second = sync.send()
    done(broker)
    assert recorded.groups() == [
        ("crm.sync", ["1 failed (ValueError)", "2 failed (ValueError)", "3 completed"]),
        ("crm.sync", ["1 completed"]),
    ]
    assert limits(recorded) == {3}
    runs = recorded.backend.runs()
    assert [run.run_id for run in runs] == [first.message_id, second.message_id]
    assert [run.groups[0].group_id for run in runs] == [first.message_id, second.message_id]


def test_in_vain(recorded: Adapted, broker: StubBroker) -> None:
    """E3: a message that is given up has failed each time; the limit may be the actor's."""
    actor(broker, "given up", failing(9, KeyError), max_retries=1).send()
    done(broker)
    assert recorded.groups() == [("given up", ["1 failed (KeyError)", "2 failed (KeyError)"])]
    assert limits(recorded) == {2}


def test_retry_is_asked_for(recorded: Adapted, broker: StubBroker) -> None:
    """E3: of ``Retry`` the error is what it was raised for, else itself."""

    def because() -> None:
        try:
            refused()
        except ConnectionError as error:
            raise Retry(delay=1) from error

    refused = failing(1, ConnectionError)
    actor(broker, "because", because).send()
    done(broker)
    actor(broker, "for nothing", failing(1, lambda: Retry(delay=1))).send()
    done(broker)
    assert recorded.groups() == [
        ("because", ["1 failed (ConnectionError)", "2 completed"]),
        ("for nothing", ["1 failed (dramatiq.errors.Retry)", "2 completed"]),
    ]


def test_who_decides_by_the_error_has_no_limit(recorded: Adapted, broker: StubBroker) -> None:
    """E3: a predicate takes precedence over ``max_retries``, so that is no limit."""
    decides = {"retry_when": lambda retries, _error: retries < 1}
    actor(broker, "decides", failing(9, KeyError), **decides).send()
    done(broker)
    assert recorded.groups() == [("decides", ["1 failed (KeyError)", "2 failed (KeyError)"])]
    assert limits(recorded) == {None}


def test_an_actor_that_is_called_is_no_try(recorded: Adapted, broker: StubBroker) -> None:
    """Issue 8: a call as a function has no message, in an actor or elsewhere."""
    inner = actor(broker, "inner", failing(0, ValueError))
    before = otel.get_current()
    inner()
    assert otel.get_current() == before
    actor(broker, "outer", inner).send()
    done(broker)
    assert recorded.groups() == [("outer", ["1 completed"])]


def test_a_fault_inside_reaches_nobody(
    recorded: Adapted, broker: StubBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 8: whatever raises in recording, the actor runs."""
    ran: list[int] = []

    def broken() -> None:
        raise RuntimeError

    monkeypatch.setattr(recording, "client", broken)
    actor(broker, "runs", lambda: ran.append(1)).send()
    done(broker)
    assert ran == [1]
    assert len(recorded.spans) == 0


def test_switched_off_it_is_gone(broker: StubBroker) -> None:
    """Issue 8: Dramatiq's methods are its own again, and messages are processed."""
    own = dramatiq.Actor.__call__
    with adapted(DramatiqInstrumentor()) as found:
        assert dramatiq.Actor.__call__ is not own
    assert dramatiq.Actor.__call__ is own
    actor(broker, "crm.sync", failing(0, ValueError)).send()
    done(broker)
    assert len(found.spans) == 0
