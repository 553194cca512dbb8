"""What a collector says of itself: metrics by node, status, health, tokens and its memory."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from flowmark_otel import names
from flowmark_otel.collector.config.loading import plan_of
from flowmark_otel.collector.config.options import BearerTokenAuth
from flowmark_otel.collector.memory import admission_of, resident_bytes
from flowmark_otel.collector.meter import Meter, NodeState, SpoolReading
from flowmark_otel.collector.metrics import page_of
from flowmark_otel.collector.operating import telemetry_of
from flowmark_otel.collector.plan import Kind
from flowmark_otel.collector.tokens import REMEMBERED_SECONDS, authenticator
from flowmark_otel.errors import ConfigurationError, Unauthenticated, Unavailable
from flowmark_otel.listen.admission import Admission
from flowmark_otel.listen.prometheus import prometheus_name
from flowmark_otel.testing import FakeClock
from tests.support.collector_files import ENVIRONMENT, SAMPLE

HOSTILE = "<script>alert(1)</script>"


def counted() -> Meter:
    """The sample's meters after a message whose branch to the backend failed."""
    meter = Meter(plan_of(SAMPLE, ENVIRONMENT), FakeClock())
    for reading in meter.nodes():
        meter.node(reading.kind, reading.id).now(NodeState.OK)
    fold = meter.node(Kind.CONNECTOR, "flowmark/fold")
    fold.received(10)
    fold.folded(4)
    fold.refused(names.INVALID, 1)
    fold.letters(1)
    exporter = meter.node(Kind.EXPORTER, "flowmark")
    exporter.received(4)
    exporter.forwarded(3)
    exporter.refused(names.CONFLICT, 1)
    exporter.retried(2)
    exporter.failed("Unavailable", HOSTILE)
    exporter.watch_spool(lambda: SpoolReading(4096, 12.5))
    meter.pipeline("traces").completed()
    return meter


@pytest_asyncio.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """The telemetry address of such a collector, served on loopback."""
    telemetry = telemetry_of("127.0.0.1:0", counted(), Admission())
    await telemetry.start()
    async with httpx.AsyncClient(base_url=f"http://{telemetry.address}") as found:
        yield found
    await telemetry.stop()


async def test_the_page_counts_by_node_and_pipeline(client: httpx.AsyncClient) -> None:
    """Section 9: received, folded, forwarded, refused by reason, letters, retries, spool."""
    page = (await client.get("/metrics")).text
    of = 'flowmark_node="flowmark",flowmark_node_kind="exporter"'
    connector = 'flowmark_node="flowmark/fold",flowmark_node_kind="connector"'
    for line in (
        f"flowmark_collector_received_total{{{connector}}} 10.0",
        f"flowmark_collector_folded_total{{{connector}}} 4.0",
        f"flowmark_collector_dead_letters_total{{{connector}}} 1.0",
        f"flowmark_collector_forwarded_total{{{of}}} 3.0",
        f'flowmark_collector_refused_total{{flowmark_delivery_reason="conflict",{of}}} 1.0',
        f"flowmark_collector_retries_total{{{of}}} 2.0",
        f"flowmark_collector_spool_size_bytes{{{of}}} 4096.0",
        f"flowmark_collector_spool_age_seconds{{{of}}} 12.5",
        "flowmark_server_ready 1.0",
    ):
        assert line in page.splitlines()
    assert (
        'flowmark_collector_pipeline_messages_total{flowmark_pipeline="traces",'
        'flowmark_pipeline_outcome="completed"} 1.0' in page
    )


async def test_the_page_is_the_table(client: httpx.AsyncClient) -> None:
    """Contract, section 10: what is declared is on the page, and nothing else of ours."""
    page = (await client.get("/metrics")).text
    families = set(re.findall(r"^# TYPE (flowmark_\S+)", page, re.MULTILINE))
    assert {each.removesuffix("_total") for each in families} == {
        prometheus_name(metric) for metric in names.COLLECTOR_METRICS
    }


@pytest.mark.needs("promtool")
def test_the_page_is_valid_for_prometheus() -> None:
    """Contract, section 10: promtool reads the page and has nothing to say against it."""
    page = page_of(counted(), in_flight=0, ready=True)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


async def test_nodes_are_told_apart_from_pipelines(client: httpx.AsyncClient) -> None:
    """C6: a pipeline that ended well shows that a branch of it failed."""
    found = (await client.get("/status")).json()
    (traces,) = (each for each in found["pipelines"] if each["id"] == "traces")
    (exporter,) = (each for each in found["nodes"] if each["id"] == "flowmark")
    assert (traces["completed"], traces["failed"], traces["last_failure"]) == (1, 0, None)
    assert exporter["failed_messages"] == 1
    assert exporter["last_failure"]["exception"] == "Unavailable"
    assert exporter["refused"] == {"conflict": 1}
    assert found["ready"] is True


async def test_the_page_shows_text_and_runs_none(client: httpx.AsyncClient) -> None:
    """Reliability, "stored script": what a peer said is shown as it is and never interpreted."""
    answer = await client.get("/status", headers={"accept": "text/html,*/*;q=0.8"})
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert HOSTILE not in answer.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text
    asked = await client.get("/status?format=json", headers={"accept": "text/html"})
    assert asked.json()["ready"] is True


@pytest.mark.parametrize("state", list(NodeState))
async def test_ready_is_what_every_node_is(state: NodeState) -> None:
    """Section 9: a node whose budget is spent, or that waits for capabilities, is not ready."""
    meter = counted()
    meter.node(Kind.EXPORTER, "flowmark").now(state)
    telemetry = telemetry_of("127.0.0.1:0", meter, Admission())
    await telemetry.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://{telemetry.address}") as client:
            readyz, healthz = await client.get("/readyz"), await client.get("/healthz")
    finally:
        await telemetry.stop()
    ready = state.value in {"ok", "failing", "paused"}
    assert (readyz.status_code, healthz.status_code) == (200 if ready else 503, 200)
    assert ready or f"exporter flowmark is {state.value}" in readyz.text


async def test_over_its_memory_limit_a_collector_sheds_with_a_time_to_wait() -> None:
    """Issue 9, memory limit: senders keep what they have and are told when to come again."""
    sizes = iter([100 << 20, 300 << 20, 100 << 20])
    clock = FakeClock()
    admission = admission_of(256 << 20, lambda: next(sizes), clock.monotonic)
    with admission.enter():
        pass
    clock.advance(1)
    with pytest.raises(Unavailable, match="memory limit of 256 MiB") as refused:
        admission.enter()
    assert refused.value.retry_after
    clock.advance(1)
    with admission.enter(1024):
        pass
    assert admission.max_bytes == 64 << 20


def test_the_size_of_the_process_is_known() -> None:
    """Issue 9, memory limit: what is held against the limit is what the system counts."""
    assert resident_bytes() > 10 << 20


def test_a_token_is_what_lets_a_sender_in() -> None:
    """Section 9: any of the tokens, as bearer, and nothing else."""
    check = authenticator(BearerTokenAuth(tokens=("first-token", "second-token")))
    assert check("Bearer second-token").kind == names.KEY_INGEST
    assert check("bearer  first-token").kind == names.KEY_INGEST
    for wrong in (
        None,
        "",
        "Bearer",
        "Bearer third",
        "Basic first-token",
        "first-token",
        "Bearer \ud800",
    ):
        with pytest.raises(Unauthenticated):
            check(wrong)


def test_a_file_of_tokens_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """Section 9: tokens rotate without a restart; a broken file leaves those that were known."""
    path = tmp_path / "tokens"
    path.write_text("old-token\n\nother-token\n")
    clock = FakeClock()
    check = authenticator(BearerTokenAuth(filename=path), clock.monotonic)
    check("Bearer other-token")
    path.write_text("new-token\n")
    os.utime(path, (1, 1))
    clock.advance(REMEMBERED_SECONDS)
    check("Bearer new-token")
    with pytest.raises(Unauthenticated):
        check("Bearer old-token")
    path.write_text("\n")
    clock.advance(REMEMBERED_SECONDS)
    check("Bearer new-token")


def test_a_file_without_tokens_is_refused_at_the_start(tmp_path: Path) -> None:
    """Section 9: a receiver that nobody could send to is a fault, not a surprise."""
    path = tmp_path / "tokens"
    path.write_text(" \n")
    with pytest.raises(ConfigurationError, match="holds no token"):
        authenticator(BearerTokenAuth(filename=path))
