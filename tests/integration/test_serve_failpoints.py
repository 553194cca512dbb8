"""Fault row 1: ``serve`` dies exactly before commit, after commit, and before the reply."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
import requests

from flowmark_otel import names
from flowmark_otel.model import Span
from flowmark_otel.wire import receipt
from tests.support.failpoints import POINTS, UNDER, VARIABLE
from tests.support.killing import TYPE, ids_of
from tests.support.otlp import traces_protobuf
from tests.support.serving import Serving


def attempt(number: int) -> Span:
    """One attempt."""
    given: dict[str, object] = {
        names.RUN_ID: "r",
        names.ATTEMPT_GROUP_ID: "g",
        names.ATTEMPT_NUMBER: number,
    }
    ids = bytes([1] * 16), number.to_bytes(8, "big")
    return Span(*ids, "o", 1, 2, failed=False, attributes=given, service_name="s")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("psql"))]
)
def test_who_dies_at_a_point_answers_the_next_time(
    kind: str, point: str, new_store: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 1, I1, I2: nothing is there before commit, all after it; sent again it is there once.

    What was acknowledged before is there in any case.
    """
    store = new_store(kind)
    monkeypatch.setenv(VARIABLE, f"{point}:2")
    body = traces_protobuf([attempt(2)])
    with Serving(store, "--insecure-no-auth", under=UNDER) as dying:
        first = dying.post("traces", traces_protobuf([attempt(1)]), TYPE["content-type"])
        assert receipt.decode(first.content, "protobuf").stored == 2
        with pytest.raises(requests.ConnectionError):
            dying.post("traces", body, TYPE["content-type"])
        assert dying.process.wait(20) == -signal.SIGKILL
    with Serving(store, "--insecure-no-auth") as serving:
        lost = names.STATE_UNKNOWN if point == "before-commit" else names.STORED
        assert states(serving) == [names.STORED] * 2 + [lost] * 2
        again = receipt.decode(
            serving.post("traces", body, TYPE["content-type"]).content, "protobuf"
        )
        expected = (2, 0) if point == "before-commit" else (0, 2)
        assert (again.stored, again.duplicate) == expected
        assert states(serving) == [names.STORED] * 4


def states(serving: Serving) -> list[str]:
    """What is said of the events of both attempts."""
    asked = {"eventIds": ids_of([attempt(1), attempt(2)])}
    answer = requests.post(f"{serving.endpoint}/v1/flowmark/status", json=asked, timeout=30)
    return [each["state"] for each in answer.json()["events"]]
