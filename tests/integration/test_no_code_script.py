"""Without code: a plain script under the real ``opentelemetry-instrument`` (D2, E2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instrumented import (
    COUNTED,
    EXPECTED,
    LOOK,
    SCRIPT,
    attempts,
    environment,
    evidence,
    needs_entry_points,
    run_instrumented,
)
from tests.support.serving import Serving


@pytest.fixture(autouse=True)
def _installed() -> None:
    needs_entry_points()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A backend with keys."""
    with Serving(tmp_path / "s.db") as found:
        yield found


def ours(serving: Serving) -> dict[str, str]:
    """What a person sets to have attempts recorded."""
    return {"FLOWMARK_ENDPOINT": serving.endpoint, "FLOWMARK_API_KEY": serving.keys[0]}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "flowmark"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
        {"OTEL_TRACES_SAMPLER": "flowmark", "OTEL_TRACES_SAMPLER_ARG": "always_off"},
        {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"},
        {"FLOWMARK_PROTOCOL": "http/json"},
    ],
    ids=lambda more: ",".join(more.values()) or "endpoint alone",
)
def test_attempts_arrive_once(serving: Serving, tmp_path: Path, more: dict[str, str]) -> None:
    """D2, E2: FLOWMARK_ENDPOINT is enough; each event arrives once, whatever else is set.

    With our exporter beside the processor, with a trace that is not sampled, with our sampler by
    name, without any instrumentation.
    """
    printed = run_instrumented(COUNTED, tmp_path, environment(**ours(serving), **more))
    assert printed == "{'stored': 4}\n"
    assert attempts(serving) == EXPECTED


def test_a_provider_that_the_program_sets_itself_is_recorded(
    serving: Serving, tmp_path: Path
) -> None:
    """D2: where no configurator sets one up, the provider is recorded from when it is set."""
    own = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "trace.set_tracer_provider(TracerProvider())\n"
    )
    env = environment(**ours(serving), OTEL_PYTHON_CONFIGURATOR="none")
    assert run_instrumented(own + COUNTED, tmp_path, env) == "{'stored': 4}\n"
    assert attempts(serving) == EXPECTED


def test_a_sampler_argument_that_is_nonsense_stops_nothing(
    serving: Serving, tmp_path: Path
) -> None:
    """E2: the application goes on and its attempts are recorded; what is wrong is said."""
    env = environment(
        **ours(serving), OTEL_TRACES_SAMPLER="flowmark", OTEL_TRACES_SAMPLER_ARG="nonsense"
    )
    with pytest.raises(AssertionError, match="there is no 'nonsense'; set one of always_off"):
        run_instrumented(COUNTED, tmp_path, env)
    assert attempts(serving) == EXPECTED


def test_beside_a_stock_exporter_nothing_counts_twice(serving: Serving, tmp_path: Path) -> None:
    """A8: the same spans sent by the stock exporter to the same backend are duplicates, all."""
    env = environment(
        **ours(serving),
        OTEL_TRACES_EXPORTER="otlp",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        OTEL_EXPORTER_OTLP_ENDPOINT=serving.endpoint,
        OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{serving.keys[0]}",
    )
    run_instrumented(SCRIPT, tmp_path, env)
    assert attempts(serving) == EXPECTED
    assert evidence(serving) == ["stored"] * 4


STOCK = [
    "opentelemetry.sdk.trace.export BatchSpanProcessor",
    (
        "ParentBased{root:AlwaysOnSampler,remoteParentSampled:AlwaysOnSampler,"
        "remoteParentNotSampled:AlwaysOffSampler,localParentSampled:AlwaysOnSampler,"
        "localParentNotSampled:AlwaysOffSampler}"
    ),
    "[]",
]


def test_installing_alone_changes_nothing(tmp_path: Path) -> None:
    """D2: without a setting of ours the provider is as the stock set-up made it."""
    env = environment(OTEL_TRACES_EXPORTER="console")
    assert run_instrumented(LOOK, tmp_path, env).splitlines() == STOCK
    assert (
        run_instrumented(
            LOOK, tmp_path, {**env, "FLOWMARK_API_KEY": "k", "FLOWMARK_ENDPOINT_FROM_OTEL": "false"}
        ).splitlines()
        == STOCK
    )


@pytest.mark.parametrize(
    "setting",
    ["FLOWMARK_ENDPOINT=http://127.0.0.1:9", "FLOWMARK_ENDPOINT_FROM_OTEL=true"],
)
def test_a_setting_attaches_in_front(tmp_path: Path, setting: str) -> None:
    """D2: the processor comes first, so that what it stamps is there for the others (E2)."""
    name, _, value = setting.partition("=")
    env = environment(OTEL_TRACES_EXPORTER="console", **{name: value})
    first, second, sampler, _ = run_instrumented(LOOK, tmp_path, env).splitlines()
    assert first == "flowmark_otel.capture.processor FlowmarkSpanProcessor"
    assert second == STOCK[0]
    assert sampler == f"FlowmarkSampler{{{STOCK[1]}}}"


CONFIGURATION = """
file_format: "1.0"
tracer_provider:
  processors:
    - simple:
        exporter: {console: {}}
  sampler:
    always_off: {}
"""


def test_with_a_configuration_file(serving: Serving, tmp_path: Path) -> None:
    """D2, E2: the same where the SDK is set up by OTEL_CONFIG_FILE, its sampler included."""
    pytest.importorskip("opentelemetry.configuration", reason="needs opentelemetry-configuration")
    path = tmp_path / "otel.yaml"
    path.write_text(CONFIGURATION)
    env = environment(**ours(serving), OTEL_CONFIG_FILE=str(path))
    assert run_instrumented(SCRIPT, tmp_path, env) == ""  # no span was sampled, none is printed
    assert attempts(serving) == EXPECTED


def test_the_sampler_by_name_in_a_configuration_file(tmp_path: Path) -> None:
    """E2: a configuration file can name our sampler; it wraps the default one."""
    pytest.importorskip("opentelemetry.configuration", reason="needs opentelemetry-configuration")
    path = tmp_path / "otel.yaml"
    path.write_text(CONFIGURATION.replace("always_off", "flowmark"))
    printed = run_instrumented(LOOK, tmp_path, environment(OTEL_CONFIG_FILE=str(path)))
    assert printed.splitlines()[1] == f"FlowmarkSampler{{{STOCK[1]}}}"
