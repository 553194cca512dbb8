"""The settings of the client, and the one family that says where it sends (contract, section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from flowmark_otel import names
from flowmark_otel.config.parsers import (
    file,
    flag,
    folder,
    headers,
    one_of,
    secret,
    signals,
    web_address,
    whole,
    words,
    words_of,
)
from flowmark_otel.config.proxy import ProxyOptions
from flowmark_otel.config.serve import ServeOptions
from flowmark_otel.config.settings import environment_name, gather, setting

PROTOBUF: Final = "http/protobuf"
JSON: Final = "http/json"
GRPC: Final = "grpc"
ACCEPT: Final = "accept"
SEND: Final = "send"

_DEFAULT: Final = "http://127.0.0.1:4318"
_DEFAULT_GRPC: Final = "http://127.0.0.1:4317"
_OTEL: Final = "OTEL_EXPORTER_OTLP_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What the client can be told (contract, section 6).

    ``endpoint``: base address; over HTTP the paths of OTLP are added to it. ``api_key``: sent as
    a bearer token. ``timeout``: milliseconds for one request. ``certificate``: authorities to
    trust, PEM; the client's own pair goes together. ``spool_dir``: where undelivered events are
    kept, none if None. ``baggage``: whether identity is read from it, written to it, or both.
    ``signals``: conventions to read as attempts (section 8). ``redact``: globs of result keys
    whose text is not sent. ``strict``: diagnostics become exceptions. ``endpoint_from_otel``:
    without an endpoint of its own the client uses the ``OTEL_EXPORTER_OTLP_*`` family.
    """

    prefix: ClassVar[str] = "FLOWMARK_"
    removed: ClassVar[Mapping[str, str]] = {}

    endpoint: str = setting(web_address, _DEFAULT, "where events go")
    protocol: str = setting(
        one_of(PROTOBUF, JSON, GRPC), PROTOBUF, "http/protobuf, http/json or grpc"
    )
    api_key: str | None = setting(secret, None, "ingest key", secret=True)
    timeout: int = setting(whole(1, 600_000), 10_000, "milliseconds for one request")
    compression: str = setting(one_of("none", "gzip"), "none", "none or gzip")
    headers: tuple[tuple[str, str], ...] = setting(
        headers, (), "more headers, as name=value,…", secret=True
    )
    certificate: Path | None = setting(file, None, "authorities to trust, PEM")
    client_certificate: Path | None = setting(file, None, "certificate of the client, PEM")
    client_key: Path | None = setting(file, None, "private key of that certificate, PEM")
    spool_dir: Path | None = setting(folder, None, "folder that keeps undelivered events")
    baggage: frozenset[str] = setting(
        words_of(ACCEPT, SEND), frozenset(), "accept, send or both: identity in baggage"
    )
    signals: tuple[str, ...] = setting(
        signals, (names.SIGNALS_SAFE,), "conventions read as attempts: safe, none, or names"
    )
    redact: tuple[str, ...] = setting(words, (), "globs of result keys that are not sent")
    strict: bool = setting(flag, default=False, description="diagnostics become exceptions")
    endpoint_from_otel: bool = setting(
        flag, default=False, description="send where OTEL_EXPORTER_OTLP_* says"
    )

    def faults(self) -> list[str]:
        """Faults between settings: half a client certificate."""
        if (self.client_certificate is None) != (self.client_key is None):
            return ["client_certificate and client_key go together"]
        return []


_DESTINATION: Final = (
    "endpoint",
    "api_key",
    "headers",
    "certificate",
    "client_certificate",
    "client_key",
)
"""Settings that say where to send and how to be known there: never mixed between families."""

_PAIR: Final = ("client_certificate", "client_key")

_FROM_OTEL: Final = {
    "endpoint": "ENDPOINT",
    "headers": "HEADERS",
    "certificate": "CERTIFICATE",
    "client_certificate": "CLIENT_CERTIFICATE",
    "client_key": "CLIENT_KEY",
    "protocol": "PROTOCOL",
    "compression": "COMPRESSION",
}
"""The timeout is not among them: SDKs disagree whether it counts seconds or milliseconds."""


def client_options(
    arguments: Mapping[str, object], environ: Mapping[str, str]
) -> tuple[ClientOptions, list[str]]:
    """The client's settings, and every fault found, each naming where its value came from.

    An application is not stopped by a wrong setting: it stands at its default. If it is the
    endpoint, all that says how to be known there does too, so that no key goes to an address it is
    not for.
    ``FLOWMARK_SERVE_*`` and ``FLOWMARK_PROXY_*`` are not the client's.
    """
    others = (ServeOptions.prefix, ProxyOptions.prefix)
    own = {name: value for name, value in environ.items() if not name.startswith(others)}
    values, faults = gather(ClientOptions, arguments, own)
    found = list(faults.values())
    if "endpoint" not in values and "endpoint" not in faults and values.get("endpoint_from_otel"):
        values, faults, more = _other_family(values, environ)
        found += more
    if "endpoint" in faults:
        alone = "no key, header or certificate is used without it"
        found = [f"{each}; {alone}" if each == faults["endpoint"] else each for each in found]
        values = {name: value for name, value in values.items() if name not in _DESTINATION}
    between = ClientOptions(**values).faults()
    if between:
        found += between
        values = {name: value for name, value in values.items() if name not in _PAIR}
    if values.get("protocol") == GRPC:
        values.setdefault("endpoint", _DEFAULT_GRPC)
    return ClientOptions(**values), found


def _other_family(
    values: dict[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """The settings with the destination that OpenTelemetry's variables name, and the faults."""
    ignored = [name for name in _DESTINATION if name in values]
    theirs = {
        environment_name(ClientOptions, name): environ.get(_OTEL + suffix, "")
        for name, suffix in _FROM_OTEL.items()
    }
    taken, faults = gather(ClientOptions, {}, theirs)
    faults = {
        name: fault.replace(environment_name(ClientOptions, name), _OTEL + _FROM_OTEL[name])
        for name, fault in faults.items()
    }
    found = list(faults.values())
    if ignored:
        found.append(f"{', '.join(ignored)} not used: the endpoint comes from {_OTEL}*")
    kept = {name: value for name, value in values.items() if name not in _DESTINATION}
    return {**taken, **kept}, faults, found


def configured(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for anything to be sent: installing alone does not."""
    return bool(
        environ.get("FLOWMARK_ENDPOINT")
        or environ.get("FLOWMARK_SPOOL_DIR")
        or _is_yes(environ.get("FLOWMARK_ENDPOINT_FROM_OTEL", ""))
    )


def _is_yes(value: str) -> bool:
    try:
        return flag(value)
    except ValueError:
        return False
