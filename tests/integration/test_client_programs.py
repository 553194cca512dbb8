"""Programs that record with the package, each in a process of its own against a real backend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.programs import INSTRUMENT, Recorded, environment, run
from tests.support.serving import Serving

AS_PASTED: Final = """
import asyncio
from opentelemetry import trace
import flowmark_otel as flowmark

def push_to_crm(): return 3
async def push_async(): return 4
previous = flowmark.workflow("booking.confirm")
previous.fail(code="PROVIDER_UNAVAILABLE", outcome="partial", result={"confirmed": 2})

flow = flowmark.workflow("crm.sync")
op = flow.operation("push-to-crm", attempt=flowmark.Attempt("customer-batch-42", 1))
op.fail(code="CRM_UNAVAILABLE", retryable=True)
imported = flow.call("push-to-crm", push_to_crm, attempt=flowmark.Attempt("customer-batch-42", 2),
          map_error=lambda e: flowmark.Failure("CRM_UNAVAILABLE", retryable=True))
asyncio.run(flow.acall("push-async", push_async, attempt=flowmark.Attempt("a", 1)))
flow.done(outcome="complete", result={"imported": imported})
recovery = flowmark.workflow("booking.confirm", retry_of=previous.ref)
recovery.done(outcome="complete")
assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
"""

ONE_RUN: Final = """
import flowmark_otel as flowmark
flow = flowmark.workflow("w")
flow.operation("o", attempt=flowmark.Attempt("g", 1)).complete()
flow.done()
"""

PLAIN_SPANS: Final = """
from opentelemetry import trace
tracer = trace.get_tracer("plain")
for number in (1, 2):
    attempt = {"flowmark.attempt.group_id": "g", "flowmark.attempt.number": number,
               "flowmark.workflow.name": "plain", "flowmark.run.id": "r"}
    with tracer.start_as_current_span("push", attributes=attempt):
        pass
    with tracer.start_as_current_span("not annotated"):
        pass
"""

COUNTS: Final = """
import flowmark_otel
from flowmark_otel.client import current
flowmark_otel.flush()
print(sorted((state, number) for (state, _), number in current().delivery.counts().items()))
"""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A backend with keys."""
    with Serving(tmp_path / "s.db") as found:
        yield found


@pytest.mark.parametrize(
    ("protocol", "flush"),
    [
        ("http/protobuf", ""),
        ("http/protobuf", "flowmark.shutdown(timeout=30)"),
        ("http/json", "flowmark.flush()"),
        ("grpc", ""),
    ],
)
def test_works_as_pasted(serving: Serving, tmp_path: Path, protocol: str, flush: str) -> None:
    """A2, A13, D1: section 6 as pasted records over each protocol; the exit flushes by itself."""
    env = environment(tmp_path, serving, FLOWMARK_PROTOCOL=protocol)
    if protocol == "grpc":
        env["FLOWMARK_ENDPOINT"] = f"http://{serving.grpc}"
    done = run(tmp_path, AS_PASTED + flush, env)
    assert done.stderr == ""
    recorded = Recorded(serving)
    [synced] = recorded.runs(workflow="crm.sync")
    assert (synced["status"], synced["outcome"], synced["result"]) == (
        "completed",
        "complete",
        {"imported": 3},
    )
    assert recorded.attempts(synced) == [
        ("push-to-crm", "customer-batch-42", 1, "failed", "CRM_UNAVAILABLE"),
        ("push-to-crm", "customer-batch-42", 2, "completed", None),
        ("push-async", "a", 1, "completed", None),
    ]
    recovery, previous = recorded.runs(workflow="booking.confirm")
    assert (previous["status"], recovery["status"]) == ("failed", "completed")
    assert recovery["retry_of"]["resolved"]
    assert recovery["retry_of"]["run_id"] == previous["run_id"]


def test_the_exit_is_bounded(tmp_path: Path) -> None:
    """E2: with nobody listening the program ends by itself, fine, and says what was lost."""
    env = environment(tmp_path, None, FLOWMARK_ENDPOINT="http://127.0.0.1:9")
    done = run(tmp_path, ONE_RUN, env)
    assert "unavailable" in done.stderr


def test_flush_in_a_program_that_reaches_nobody(tmp_path: Path) -> None:
    """A22: an explicit flush fails, and names every event that was not acknowledged."""
    env = environment(tmp_path, None, FLOWMARK_ENDPOINT="http://127.0.0.1:9")
    program = ONE_RUN + (
        "try: flowmark.flush(1)\n"
        "except flowmark.DeliveryError as error:\n"
        "    print(len(error.failures), sum(error.counts.values()))\n"
    )
    assert run(tmp_path, program, env).stdout == "4 4\n"


FORKS: Final = {
    "os.fork": """
import os
child = os.fork()
if child == 0:
    flow.operation("child", attempt=flowmark.Attempt("child", 1)).complete()
    flowmark.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
    "multiprocessing fork": """
import multiprocessing
def child():
    flow.operation("child", attempt=flowmark.Attempt("child", 1)).complete()
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0
""",
}


@pytest.mark.parametrize("how", FORKS)
def test_forked_children_record_too(serving: Serving, tmp_path: Path, how: str) -> None:
    """A26: parent and child deliver what each recorded, once, also with a queue at the fork."""
    program = f"""
import flowmark_otel as flowmark
flow = flowmark.workflow("w")
flow.operation("parent", attempt=flowmark.Attempt("parent", 1)).complete()
{FORKS[how]}
flow.operation("parent", attempt=flowmark.Attempt("parent", 2)).complete()
flow.done()
"""
    run(tmp_path, program, environment(tmp_path, serving))
    recorded = Recorded(serving)
    [only] = recorded.runs()
    assert only["status"] == "completed"
    assert sorted(recorded.attempts(only)) == [
        ("child", "child", 1, "completed", None),
        ("parent", "parent", 1, "completed", None),
        ("parent", "parent", 2, "completed", None),
    ]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_children_record_too(serving: Serving, tmp_path: Path, method: str) -> None:
    """A26: a spawned child is a process like any other, given the reference to its run."""
    program = f"""
import multiprocessing
import flowmark_otel as flowmark

def child(run_id):
    with flowmark.workflow("of the child", retry_of=flowmark.RunRef("w", run_id)):
        pass

if __name__ == "__main__":
    flow = flowmark.workflow("w")
    process = multiprocessing.get_context({method!r}).Process(target=child, args=(flow.run_id,))
    process.start()
    process.join()
    assert process.exitcode == 0
    flow.done()
"""
    run(tmp_path, program, environment(tmp_path, serving))
    assert {found["workflow"]: found["status"] for found in Recorded(serving).runs()} == {
        "w": "completed",
        "of the child": "completed",
    }


QUIET: Final = {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
WITHOUT_CODE: Final = {
    "processor": {"OTEL_TRACES_EXPORTER": "none"},
    "processor and exporter": {"OTEL_TRACES_EXPORTER": "flowmark"},
    "nothing is sampled": {"OTEL_TRACES_EXPORTER": "none", "OTEL_TRACES_SAMPLER": "always_off"},
    "sampler by name": {
        "OTEL_TRACES_EXPORTER": "flowmark",
        "OTEL_TRACES_SAMPLER": "flowmark",
        "OTEL_TRACES_SAMPLER_ARG": "always_off",
    },
}


@pytest.mark.parametrize("how", WITHOUT_CODE)
def test_without_code(serving: Serving, tmp_path: Path, how: str) -> None:
    """D2, E2: opentelemetry-instrument and an endpoint record annotated spans, each once."""
    env = environment(tmp_path, serving, **QUIET, **WITHOUT_CODE[how])
    done = run(tmp_path, PLAIN_SPANS + COUNTS, env, INSTRUMENT)
    assert "Traceback" not in done.stderr
    assert done.stdout == "[('stored', 4)]\n"
    recorded = Recorded(serving)
    [only] = recorded.runs(workflow="plain")
    assert [attempt[2:4] for attempt in recorded.attempts(only)] == [
        (1, "completed"),
        (2, "completed"),
    ]


def test_the_exporter_alone(serving: Serving, tmp_path: Path) -> None:
    """D2: OTEL_TRACES_EXPORTER=flowmark alone records finished spans, each once."""
    env = environment(tmp_path, None, OTEL_TRACES_EXPORTER="flowmark", **QUIET)
    late = (  # what asks for the processor is not set yet when the SDK is
        "import os\n"
        f"os.environ['FLOWMARK_ENDPOINT'] = {serving.endpoint!r}\n"
        f"os.environ['FLOWMARK_API_KEY'] = {serving.keys[0]!r}\n"
    )
    done = run(tmp_path, late + PLAIN_SPANS + COUNTS, env, INSTRUMENT)
    assert done.stdout == "[('stored', 4)]\n"
    assert len(Recorded(serving).runs(workflow="plain")) == 1


def test_the_endpoint_of_the_other_family(serving: Serving, tmp_path: Path) -> None:
    """Contract, section 6: FLOWMARK_ENDPOINT_FROM_OTEL sends where OpenTelemetry does."""
    env = environment(
        tmp_path,
        None,
        FLOWMARK_ENDPOINT_FROM_OTEL="true",
        OTEL_EXPORTER_OTLP_ENDPOINT=serving.endpoint,
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",  # the distro's default is gRPC
        OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{serving.keys[0]}",
        OTEL_TRACES_EXPORTER="none",
        **QUIET,
    )
    assert run(tmp_path, PLAIN_SPANS + COUNTS, env, INSTRUMENT).stdout == "[('stored', 4)]\n"


def test_installing_alone_changes_nothing(serving: Serving, tmp_path: Path) -> None:
    """D2: without a setting of ours nothing is attached, and nothing is sent."""
    env = environment(tmp_path, None, OTEL_TRACES_EXPORTER="none", **QUIET)
    program = PLAIN_SPANS + (
        "provider = trace.get_tracer_provider()\n"
        "print(provider._active_span_processor._span_processors, provider.sampler)\n"
    )
    done = run(tmp_path, program, env, INSTRUMENT)
    assert "Flowmark" not in done.stdout
    assert re.search(r"^\(\) .*ParentBased", done.stdout, re.MULTILINE)
    assert Recorded(serving).runs() == []


def test_killed_with_a_spool(serving: Serving, tmp_path: Path) -> None:
    """E1: a killed attempt shows as open: its start was on disk, and the next process sends it."""
    env = environment(tmp_path, serving, FLOWMARK_SPOOL_DIR=str(tmp_path / "spool"))
    killed = """
import os, signal
import flowmark_otel as flowmark
flow = flowmark.workflow("w", run_id="r")
flow.operation("o", attempt=flowmark.Attempt("g", 1))
os.kill(os.getpid(), signal.SIGKILL)
"""
    dead = environment(
        tmp_path,
        None,
        FLOWMARK_SPOOL_DIR=str(tmp_path / "spool"),
        FLOWMARK_ENDPOINT="http://127.0.0.1:9",
    )
    assert run(tmp_path, killed, dead, check=False).returncode == -9
    run(tmp_path, ONE_RUN + "flowmark.flush()\n", env)
    recorded = Recorded(serving)
    [left] = recorded.runs(run_id="r")
    assert left["status"] == "open"
    assert recorded.attempts(left) == [("o", "g", 1, "open", None)]
