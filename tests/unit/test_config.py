"""Settings: declared once, resolved in one order, all faults together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from flowmark_otel import config, names
from flowmark_otel.config import ServeOptions, resolve
from flowmark_otel.errors import ConfigurationError


def faults(arguments: Mapping[str, object], environ: Mapping[str, str] | None = None) -> list[str]:
    """What is wrong with serve settings; fails the test if nothing is."""
    with pytest.raises(ConfigurationError) as caught:
        resolve(ServeOptions, arguments, environ or {})
    return caught.value.faults


def test_defaults_are_the_contracts() -> None:
    """Contract, sections 4 and 7: loopback 4317 and 4318, 64 MiB, keys, nothing left out."""
    options = resolve(ServeOptions, {}, {})
    assert options == ServeOptions()
    assert (options.grpc, options.http) == ("127.0.0.1:4317", "127.0.0.1:4318")
    assert options.max_request_bytes == 64 * 1024 * 1024
    assert options.insecure_no_auth is False
    assert options.capabilities == (names.CAPABILITY,)


def test_argument_goes_before_environment_before_default() -> None:
    """An argument wins over the environment, the environment over the default."""
    environ = {"FLOWMARK_SERVE_GRPC": "127.0.0.1:1", "FLOWMARK_SERVE_HTTP": "127.0.0.1:2"}
    options = resolve(ServeOptions, {"grpc": "127.0.0.1:3", "http": None}, environ)
    assert (options.grpc, options.http) == ("127.0.0.1:3", "127.0.0.1:2")


def test_all_faults_are_reported_together() -> None:
    """Every fault is named at once, with where its value came from."""
    found = faults(
        {"grpc": "4317", "retain": "90"},
        {"FLOWMARK_SERVE_MAX_REQUEST_BYTES": "1", "FLOWMARK_SERVE_DBX": "y"},
    )
    assert [fault.split(":")[0] for fault in found] == [
        "grpc",
        "retain",
        "FLOWMARK_SERVE_MAX_REQUEST_BYTES",
        "FLOWMARK_SERVE_DBX is no setting",
    ]


def test_an_empty_variable_counts_as_absent() -> None:
    """An empty environment variable is the default, as OpenTelemetry has it."""
    assert resolve(ServeOptions, {}, {"FLOWMARK_SERVE_RETAIN": ""}).retain is None


def test_other_variables_are_left_alone() -> None:
    """Variables of other programs and of the client are no faults of serve."""
    environ = {"FLOWMARK_ENDPOINT": "http://127.0.0.1:4318", "PATH": "/bin"}
    assert resolve(ServeOptions, {}, environ) == ServeOptions()


def test_removed_names_keep_a_pointer() -> None:
    """A setting that is gone says what took its place."""

    @dataclass(frozen=True, kw_only=True)
    class Renamed:
        prefix: ClassVar[str] = "X_"
        removed: ClassVar[Mapping[str, str]] = {"bind": "use listen"}
        listen: str = config.setting(config.address, "127.0.0.1:1", "address")

        def faults(self) -> list[str]:
            return []

    with pytest.raises(ConfigurationError, match="X_BIND was removed: use listen"):
        resolve(Renamed, {}, {"X_BIND": "127.0.0.1:2"})


def test_every_setting_is_documented() -> None:
    """Each setting has help, and an environment name that sets it."""
    for name, setting in config.declared(ServeOptions).items():
        assert setting.help
        assert config.environment_name(ServeOptions, name) == f"FLOWMARK_SERVE_{name.upper()}"


def test_options_are_frozen() -> None:
    """Settings do not change once resolved."""
    with pytest.raises(FrozenInstanceError):
        ServeOptions().workers = 2  # type: ignore[misc]


@pytest.mark.parametrize("value", ["127.0.0.1:0", "[::1]:4317", "localhost:65535", "0.0.0.0:1"])
def test_addresses(value: str) -> None:
    """An address is host and port, port 0 for any free one."""
    assert config.address(value) == value


@pytest.mark.parametrize(
    "value", ["", "4317", ":4317", "host", "host:", "host:x", "host:65536", "::1:4317", "host:-1"]
)
def test_bad_addresses(value: str) -> None:
    """What is no HOST:PORT is refused, and the fault says the form."""
    assert "must" in faults({"http": value})[0]


@pytest.mark.parametrize(("value", "host"), [("[::1]:4317", "::1"), ("a.b:1", "a.b")])
def test_split_address(value: str, host: str) -> None:
    """The host comes without brackets, as sockets want it."""
    assert config.split_address(value)[0] == host


@pytest.mark.parametrize(
    ("value", "seconds"), [("90d", 7_776_000), ("12h", 43_200), ("30m", 1_800), ("45s", 45)]
)
def test_lengths_of_time(value: str, seconds: int) -> None:
    """Contract, section 7: retention is given as 90d and the like."""
    assert resolve(ServeOptions, {"retain": value}, {}).retain == seconds


@pytest.mark.parametrize("value", ["0d", "90", "d", "1.5d", "-1d", "1w", "٣d"])
def test_bad_lengths_of_time(value: str) -> None:
    """A length of time without unit, or of zero, is refused."""
    assert faults({"retain": value})[0].startswith("retain: must be a length of time")


@pytest.mark.parametrize(("value", "result"), [("true", True), ("1", True), ("No", False)])
def test_flags(value: str, result: bool) -> None:  # noqa: FBT001 - the expected value
    """Flags read the usual words."""
    assert resolve(ServeOptions, {}, {"FLOWMARK_SERVE_MIGRATE": value}).migrate is result


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", 0),
        ("workers", True),
        ("workers", "two"),
        ("max_request_bytes", 1023),
        ("migrate", "maybe"),
        ("db", "  "),
        ("without", "attempts-v2"),
        ("without", 3),
        ("trace_url", "http://traces/"),
        ("trace_url", "javascript:{trace_id}"),
        ("trace_url", "http://traces/{trace_id}/{other}"),
        ("tls_cert", "/nowhere/cert.pem"),
    ],
)
def test_values_out_of_bounds(name: str, value: object) -> None:
    """Each setting has its bounds, and the fault names the setting."""
    assert faults({name: value})[0].startswith(f"{name}: ")


def test_capability_can_be_left_out() -> None:
    """A21: `--without attempts-v1` makes a backend that acknowledges nothing of the kind."""
    assert resolve(ServeOptions, {"without": ("attempts-v1",)}, {}).capabilities == ()


def test_trace_template() -> None:
    """Contract, section 7: the template takes trace and span id."""
    template = "https://traces.example/{trace_id}?span={span_id}"
    assert resolve(ServeOptions, {"trace_url": template}, {}).trace_url == template


def test_half_a_tls_pair_is_refused(tmp_path: Path) -> None:
    """A certificate without its key, or the reverse, is a fault."""
    cert = tmp_path / "cert.pem"
    cert.touch()
    assert faults({"tls_cert": cert}) == ["tls_cert and tls_key go together"]


@pytest.mark.parametrize("value", ["0.0.0.0:4317", "[::]:4317", "192.0.2.1:4317", "host:4317"])
def test_no_keys_on_loopback_only(value: str) -> None:
    """Contract, section 4: without keys nothing listens where others can reach it."""
    found = faults({"insecure_no_auth": True, "grpc": value, "http": "localhost:0"})
    assert found == [f"insecure_no_auth needs a loopback address, found grpc {value}"]


def test_default_store_is_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract, section 7: without --db the store is SQLite in the user data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    url = ServeOptions().database_url
    assert url.startswith(f"sqlite:///{tmp_path}/")
    assert Path(url.removeprefix("sqlite:///")).parent.is_dir()
    assert ServeOptions(db="sqlite:////x.db").database_url == "sqlite:////x.db"
