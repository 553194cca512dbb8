"""Services of any language, unmodified: the collector records their tries (D3, section 8)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from flowmark_otel import names
from flowmark_otel.signals import signals_of
from flowmark_otel.wire.encode import encode_logs
from tests.support.collecting import collecting, configuration
from tests.support.payloads import JSON, PROTOBUF, as_json, request, span
from tests.support.server import options, running
from tests.support.serving import Asking
from tests.support.signals import SAMPLES, envelopes_in

OWN: Final = {names.ATTEMPT_GROUP_ID: "mine", names.ATTEMPT_NUMBER: 1}
TYPES: Final = {".json": JSON, ".pb": PROTOBUF}

Tries = list[tuple[str, str, int, str, str]]


class Behind(NamedTuple):
    """A backend that reads no signals, and the collector before it, which does."""

    backend: Asking
    collector: Asking


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    """Both, the store empty."""
    served = options(tmp_path / "behind.db", insecure_no_auth=True, signals=("none",))
    with (
        running(served) as backend,
        collecting(configuration(f"http://{backend.http}")) as collector,
    ):
        yield Behind(Asking(backend.http), Asking(collector.http))


def tries(backend: Asking) -> Tries:
    """Operation, group, number, status and kind of all attempts, in that order."""
    return sorted(
        (group["operation"], group["group_id"], each["number"], each["status"], each["kind"])
        for run in backend.get("/runs", limit=200)["items"]
        for group in backend.get(f"/runs/{run['key']}/attempts")["items"]
        for each in group["attempts"]
    )


def counted(backend: Asking) -> dict[str, int]:
    """The events that the backend judged, by state."""
    found: dict[str, int] = {}
    for row in backend.get("/ingest")["events"]:
        found[row["state"]] = found.get(row["state"], 0) + row["count"]
    return found


def test_what_real_services_send_has_its_tries(tmp_path: Path, behind: Behind) -> None:
    """D3: for every capture of an unmodified service the tries are those a backend reads itself.

    The sender is told nothing of them: no receipt counts what it did not annotate.
    """
    with running(options(tmp_path / "direct.db", insecure_no_auth=True)) as alone:
        direct = Asking(alone.http)
        for sample in SAMPLES:
            for asked in (direct, behind.collector):
                answer = asked.post("traces", sample.read_bytes(), TYPES[sample.suffix])
                assert answer.status_code == 200, sample
        found = tries(behind.backend)
        assert found == tries(direct)
        assert len(found) > 5
        assert {kind for *_, kind in found} == {names.KIND_OBSERVED}


def test_a_try_that_an_sdk_recorded_too_is_counted_once(behind: Behind) -> None:
    """D3, A8: an SDK that maps, and the collector behind a stock exporter: one try, no conflict."""
    signals = signals_of((names.SIGNALS_SAFE,))
    sample = next(each for each in SAMPLES if each.stem == "real_celery_retry")
    events = envelopes_in("celery_retry", signals)
    assert events
    body = encode_logs(events, {"service.name": "celery"})
    told = behind.collector.post("logs", body, PROTOBUF)
    assert told.status_code == 200
    before = tries(behind.backend)
    assert behind.collector.post("traces", sample.read_bytes(), JSON).status_code == 200
    assert tries(behind.backend) == before
    assert counted(behind.backend) == {
        names.STORED: len(events),
        names.DUPLICATE: len(events),
    }


def test_a_span_annotated_by_an_adapter_is_no_signal(behind: Behind) -> None:
    """Section 8: a span that carries both is one try, by its own keys, and is told as one."""
    given = {
        **OWN,
        "celery.action": "run",
        "celery.task_name": "t.fetch",
        "celery.state": "RETRY",
        "messaging.message.id": "task-1",
    }
    plain = {key: value for key, value in given.items() if key not in OWN}
    body = as_json(request([span(1, given), span(2, plain)]))
    told = behind.collector.post("traces", body, JSON).json()
    assert (told["received"], told["stored"]) == ("2", "2")
    assert len(tries(behind.backend)) == 2
    again = behind.collector.post("traces", body, JSON).json()
    assert (again["received"], again["duplicate"]) == ("2", "2")
    assert len(tries(behind.backend)) == 2
