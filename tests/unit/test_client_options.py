"""The client's settings: one family says where to send, and nothing wrong stops an application."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from flowmark_otel.client import environment
from flowmark_otel.config import ClientOptions, client_options, configured, declared
from flowmark_otel.config.settings import environment_name


def options(environ: Mapping[str, str], **arguments: object) -> ClientOptions:
    """Settings without a fault."""
    found, faults = client_options(arguments, environ)
    assert faults == []
    return found


def test_defaults_are_the_contracts() -> None:
    """Contract, section 6: http/protobuf to 127.0.0.1:4318, no key, no spool, no baggage."""
    found = options({})
    assert found == ClientOptions()
    assert (found.endpoint, found.protocol) == ("http://127.0.0.1:4318", "http/protobuf")
    assert (found.spool_dir, found.baggage, found.strict) == (None, frozenset(), False)


def test_grpc_has_its_own_port() -> None:
    """Contract, section 4: OTLP over gRPC is on 4317."""
    assert options({"FLOWMARK_PROTOCOL": "grpc"}).endpoint == "http://127.0.0.1:4317"


def test_arguments_go_first(tmp_path: Path) -> None:
    """Contract, section 6: arguments, then the environment."""
    environ = {"FLOWMARK_ENDPOINT": "http://a:1", "FLOWMARK_SPOOL_DIR": str(tmp_path / "new")}
    found = options(environ, endpoint="http://b:2/", api_key="k")
    assert (found.endpoint, found.api_key) == ("http://b:2", "k")
    assert found.spool_dir == tmp_path / "new"


def test_lists_and_headers() -> None:
    """Contract, section 6: comma lists, and headers as OpenTelemetry writes them."""
    found = options(
        {
            "FLOWMARK_HEADERS": "X-Tenant=a%20b,y=2",
            "FLOWMARK_BAGGAGE": "accept, send",
            "FLOWMARK_REDACT": "customer.*,notes",
            "FLOWMARK_STRICT": "1",
        }
    )
    assert found.headers == (("x-tenant", "a b"), ("y", "2"))
    assert found.baggage == {"accept", "send"}
    assert found.redact == ("customer.*", "notes")
    assert found.strict


def test_secrets_are_not_shown() -> None:
    """Reliability, security: a key is never logged."""
    shown = repr(options({"FLOWMARK_API_KEY": "fmk_a_secret", "FLOWMARK_HEADERS": "a=secret"}))
    assert "secret" not in shown


OTEL = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "10",
}


@pytest.mark.parametrize(
    "environ",
    [
        OTEL,
        {**OTEL, "FLOWMARK_ENDPOINT": "http://own:1", "FLOWMARK_ENDPOINT_FROM_OTEL": "true"},
    ],
)
def test_the_other_family_is_used_only_if_asked(environ: Mapping[str, str]) -> None:
    """Contract, section 6: OTEL_EXPORTER_OTLP_* counts only without an endpoint of our own."""
    found = options(environ)
    assert found.endpoint == environ.get("FLOWMARK_ENDPOINT", "http://127.0.0.1:4318")
    assert found.headers == ()


def test_the_other_family() -> None:
    """Contract, section 6: endpoint, headers and protocol from OpenTelemetry's variables."""
    found = options({**OTEL, "FLOWMARK_ENDPOINT_FROM_OTEL": "true"})
    assert found.endpoint == "http://collector:4318"
    assert found.headers == (("authorization", "Bearer x"),)
    assert found.timeout == 10_000
    grpc = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "FLOWMARK_ENDPOINT_FROM_OTEL": "true"}
    assert options(grpc).endpoint == "http://127.0.0.1:4317"


def test_families_are_never_mixed() -> None:
    """Contract, section 6: our key does not go to an address that is not ours, and that is told."""
    environ = {**OTEL, "FLOWMARK_ENDPOINT_FROM_OTEL": "true", "FLOWMARK_API_KEY": "fmk_a_b"}
    found, [fault] = client_options({}, environ)
    assert found.endpoint == "http://collector:4318"
    assert found.api_key is None
    assert fault == "api_key not used: the endpoint comes from OTEL_EXPORTER_OTLP_*"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENDPOINT", "collector:4318"),
        ("ENDPOINT", "http://user:hunter2@host"),
        ("ENDPOINT", "http://host:99999"),
        ("ENDPOINT", "http://host/?a=b"),
        ("PROTOCOL", "http"),
        ("TIMEOUT", "0"),
        ("COMPRESSION", "zstd"),
        ("HEADERS", "nothing"),
        ("HEADERS", "a=%0d%0ab"),
        ("API_KEY", "hunter2\n"),
        ("CERTIFICATE", "/nowhere/ca.pem"),
        ("BAGGAGE", "receive"),
        ("STRICT", "maybe"),
        ("CLIENT_KEY", __file__),
        ("ENPOINT", "http://a:1"),
    ],
)
def test_a_wrong_setting_is_a_fault_and_its_default_stands(name: str, value: str) -> None:
    """Contract, section 6: a wrong or unknown variable is told and stops nothing."""
    variable = f"FLOWMARK_{name}"
    found, faults = client_options({}, {"FLOWMARK_API_KEY": "fmk_a_b", variable: value})
    [fault] = faults
    assert variable in fault or "go together" in fault
    assert "hunter2" not in fault
    assert ("no key, header or certificate" in fault) == (name == "ENDPOINT")
    kept = name not in {"ENDPOINT", "API_KEY"}
    assert found == (ClientOptions(api_key="fmk_a_b") if kept else ClientOptions())


@pytest.mark.parametrize("name", ["HEADERS", "CERTIFICATE", "CLIENT_KEY"])
def test_a_wrong_header_does_not_send_elsewhere(name: str) -> None:
    """Contract, section 6: only a wrong endpoint falls back to the default one."""
    found, _ = client_options({}, {"FLOWMARK_ENDPOINT": "http://a:1", f"FLOWMARK_{name}": "x"})
    assert found == ClientOptions(endpoint="http://a:1")


def test_settings_of_serve_are_not_the_clients() -> None:
    """Contract, section 6: FLOWMARK_SERVE_* is not read, and no fault."""
    assert options({"FLOWMARK_SERVE_DB": "sqlite://", "PATH": "/bin"}) == ClientOptions()


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        (OTEL, False),
        ({"FLOWMARK_ENDPOINT": ""}, False),
        ({"FLOWMARK_API_KEY": "fmk_a_b"}, False),
        ({"FLOWMARK_ENDPOINT_FROM_OTEL": "false"}, False),
        ({"FLOWMARK_ENDPOINT_FROM_OTEL": "perhaps"}, False),
        ({"FLOWMARK_ENDPOINT_FROM_OTEL": "true"}, True),
        ({"FLOWMARK_ENDPOINT": "http://a:1"}, True),
        ({"FLOWMARK_SPOOL_DIR": "/var/spool/flowmark"}, True),
    ],
)
def test_installing_alone_asks_for_nothing(environ: Mapping[str, str], asked: bool) -> None:  # noqa: FBT001 - expected
    """D2: without code something is sent only if one of three variables is set."""
    assert configured(environ) is asked


def test_every_variable_is_named() -> None:
    """D2: the variables OpenTelemetry's tools are told of are those that there are."""
    found = {name for name in dir(environment) if name.startswith("FLOWMARK_")}
    assert found == {environment_name(ClientOptions, name) for name in declared(ClientOptions)}
    assert all(getattr(environment, name) == name for name in found)
    assert all(setting.help for setting in declared(ClientOptions).values())
