"""The collector's file: the sample is a plan; what breaks a rule is a fault with a mend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowmark_otel.collector.config.loading import load, plan_of
from flowmark_otel.collector.config.options import (
    FlowmarkConnector,
    FlowmarkExporter,
    OtlpGrpcExporter,
    OtlpHttpExporter,
)
from flowmark_otel.collector.plan import Acknowledge, Trigger
from flowmark_otel.errors import ConfigurationError
from tests.support.collector_faults import BROKEN, OPEN_DOOR
from tests.support.collector_files import ABSENT, ENVIRONMENT, KEY, SAMPLE, changed, faults


def test_the_sample_of_the_contract_is_a_plan() -> None:
    """Section 9: the sample loads as it stands, with every value where it belongs."""
    plan = plan_of(SAMPLE, ENVIRONMENT)
    assert list(plan.receivers) == ["otlp"]
    assert list(plan.connectors) == ["flowmark/fold", "errors/letters"]
    assert list(plan.exporters) == ["flowmark", "otlp_http/tracing", "file/letters"]
    assert plan.pipelines["traces"].exporters == ("otlp_http/tracing", "flowmark/fold")
    assert plan.pipelines["traces"].trigger is Trigger.ALL_SUCCESS
    assert plan.acknowledge is Acknowledge.END_TO_END
    assert plan.telemetry == "127.0.0.1:8888"
    exporter = plan.exporters["flowmark"].options
    assert isinstance(exporter, FlowmarkExporter)
    assert exporter.headers == {"authorization": f"Bearer {KEY}"}
    assert exporter.retry is not None
    assert (exporter.retry.max_attempts, exporter.retry.no_retry_on) == (5, ("InvalidEnvelope",))
    assert exporter.spool is not None
    assert exporter.spool.directory == Path("spool")
    fold = plan.connectors["flowmark/fold"].options
    assert isinstance(fold, FlowmarkConnector)
    assert (fold.on_error, fold.errors) == ("route", "errors/letters")


@pytest.mark.parametrize(("changes", "said"), BROKEN)
def test_a_broken_rule_is_one_fault_with_its_place_and_mend(
    changes: dict[str, Any], said: str
) -> None:
    """Section 9: what breaks a rule is refused, by its path, what was found and the mend."""
    assert said in [fault.rpartition(" (line ")[0] or fault for fault in faults(changed(changes))]


def test_a_fault_names_the_line_of_the_file() -> None:
    """Section 9: a fault leads to its place in the file."""
    text = SAMPLE.replace("max_attempts: 5", "max_attempts: 11")
    assert faults(text) == [
        "exporters.flowmark.retry.max_attempts: 11 is over 10; set 1 to 10 (line 14)"
    ]


def test_all_faults_of_a_file_are_said_at_once() -> None:
    """Section 9: one fault hides no other, between sections or in one."""
    found = faults(
        changed(
            {
                "receivers>otlp>protocols>http>cors": {},
                OPEN_DOOR: "[::]:4317",
                "connectors>flowmark/fold>on_error": "rout",
                "connectors>flowmark/fold>errors": "errors/letter",
                "exporters>flowmark>endpoint": "nowhere",
                "exporters>flowmark>errors": ABSENT,
                "exporters>flowmark>retry": {"max_attempts": 12, "backoff_ms": -1},
                "service>acknowledge": "sometimes",
            }
        )
    )
    assert [fault.partition(": ")[0] for fault in found] == [
        "receivers.otlp.protocols.grpc.endpoint",
        "receivers.otlp.protocols.http.cors",
        "connectors.flowmark/fold.on_error",
        "connectors.flowmark/fold.errors",
        "exporters.flowmark.errors",
        "exporters.flowmark.endpoint",
        "exporters.flowmark.retry.max_attempts",
        "exporters.flowmark.retry.backoff_ms",
        "service.acknowledge",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"exporters>flowmark>headers>authorization": f"Bearer {KEY}\n"},
        {"exporters>flowmark>headers>authorization": [f"Bearer {KEY}"]},
        {"exporters>flowmark>endpoint": f"http://user:{KEY}@127.0.0.1:5318"},
        {"exporters>flowmark>endpoint": "${env:FLOWMARK_API_KEY}"},
        {"exporters>flowmark>on_error": "${env:FLOWMARK_API_KEY}"},
        {"exporters>flowmark>retry>max_attempts": "${env:FLOWMARK_API_KEY}"},
        {"exporters>flowmark>retry>retry_on": ["${env:FLOWMARK_API_KEY}"]},
        {"receivers>otlp>protocols>grpc>endpoint": "${env:FLOWMARK_API_KEY}"},
        {"extensions>bearertokenauth": {"token": f"{KEY} {KEY}"}},
        {"extensions>bearertokenauth": {"tokens": {KEY: 1}}},
    ],
)
def test_no_fault_quotes_a_secret(changes: dict[str, Any]) -> None:
    """Reliability, "secrets": headers, tokens and what variables gave are in no message."""
    found = faults(changed(changes))
    assert found
    assert KEY not in "".join(found)


def test_names_of_other_releases_are_the_same_component() -> None:
    """Section 9: the Collector's grammar, older names of its exporters included."""
    text = changed(
        {
            "exporters>otlp": {"endpoint": "127.0.0.1:14317", "tls": {"insecure": True}},
            "exporters>otlphttp": {"endpoint": "https://tracing.example"},
            "service>pipelines>traces>exporters": ["otlp", "otlphttp", "flowmark/fold"],
        }
    )
    plan = plan_of(text, ENVIRONMENT)
    over_grpc, over_http = plan.exporters["otlp"], plan.exporters["otlphttp"]
    assert isinstance(over_grpc.options, OtlpGrpcExporter)
    assert isinstance(over_http.options, OtlpHttpExporter)
    assert (over_grpc.type, over_http.type) == ("otlp_grpc", "otlp_http")
    assert over_grpc.options.url == "http://127.0.0.1:14317"
    assert over_http.options.url == "https://tracing.example"
    assert plan.unused == ("exporters.otlp_http/tracing",)


def test_an_address_that_others_reach_needs_a_token_or_the_switch() -> None:
    """Reliability, "exposure": an open receiver has an authenticator, or --insecure-no-auth."""
    assert faults(changed({OPEN_DOOR: "0.0.0.0:4317"}), no_auth=True) == []
    text = changed(
        {
            OPEN_DOOR: "0.0.0.0:4317",
            "receivers>otlp>protocols>grpc>auth": {"authenticator": "bearertokenauth"},
            "extensions>bearertokenauth": {"token": "secret-token"},
            "service>extensions": ["bearertokenauth"],
        }
    )
    plan = plan_of(text, ENVIRONMENT)
    assert list(plan.extensions) == ["bearertokenauth"]
    assert "secret-token" not in repr(plan)


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    """Section 9: no file, a folder, and bytes that are no text are faults, not tracebacks."""
    wrong = tmp_path / "latin.yaml"
    wrong.write_bytes(b"receivers: \xe9")
    for path in (tmp_path / "absent.yaml", tmp_path, wrong):
        with pytest.raises(ConfigurationError):
            load(path, {})
