"""The settings, each declared once: type, default, bounds, environment name, help.

A settings class is a frozen data class whose fields are made by ``setting``. ``resolve`` fills one
from arguments, then the environment, then the defaults, and reports all faults together. Classes
can be constructed directly too, then their author vouches for the values.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from flowmark_otel import names
from flowmark_otel.errors import ConfigurationError

T = TypeVar("T")
SettingsT = TypeVar("SettingsT", bound="Settings")

Parse = Callable[[object], T]
"""Turns text, or a value that has the type already, into the setting; ValueError says the rule."""

_SETTING: Final = "flowmark.setting"
_MAX_PORT: Final = 65535
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off", ""})


class Setting(NamedTuple):
    """What is declared of a setting beside its default."""

    parse: Parse[Any]
    help: str


class Settings(Protocol):
    """What ``resolve`` needs of a settings class.

    ``prefix`` and the field's name in upper case make the environment name. ``removed`` maps
    names (of fields, in lower case) that existed once to a sentence on what to use instead.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    prefix: ClassVar[str]
    removed: ClassVar[Mapping[str, str]]

    def faults(self) -> list[str]:
        """Faults that lie between settings, each one a sentence."""
        ...


def setting(parse: Parse[T], default: T, description: str) -> T:
    """Declare a field of a settings class."""
    return field(default=default, metadata={_SETTING: Setting(parse, description)})


def declared(kind: type[Settings]) -> dict[str, Setting]:
    """The settings of a class by field name, in order: for flags and for documentation."""
    return {item.name: item.metadata[_SETTING] for item in fields(kind)}


def environment_name(kind: type[Settings], name: str) -> str:
    """The environment variable that sets a field."""
    return f"{kind.prefix}{name.upper()}"


def resolve(
    kind: type[SettingsT], arguments: Mapping[str, object], environ: Mapping[str, str]
) -> SettingsT:
    """Settings from arguments, then the environment, then the defaults.

    An argument that is None and a variable that is empty count as absent. Raises
    ConfigurationError with every fault, each naming where its value came from.
    """
    settings = declared(kind)
    given = {name: value for name, value in arguments.items() if value is not None}
    found = [
        *((name, value, name) for name, value in given.items()),
        *(
            (variable.removeprefix(kind.prefix).lower(), value, variable)
            for variable, value in environ.items()
            if variable.startswith(kind.prefix) and value
        ),
    ]
    faults: list[str] = []
    values: dict[str, object] = {}
    for name, value, source in found:
        if name in kind.removed:
            faults.append(f"{source} was removed: {kind.removed[name]}")
        elif name not in settings:
            faults.append(f"{source} is no setting")
        elif name not in values:
            try:
                values[name] = settings[name].parse(value)
            except ValueError as error:
                faults.append(f"{source}: {error}")
    if not faults:
        options = kind(**values)
        faults = options.faults()
    if faults:
        raise ConfigurationError(faults)
    return options


# -- parsers ----------------------------------------------------------------------------------
def text(value: object) -> str:
    """A nonblank string."""
    if not isinstance(value, str) or not value.strip():
        msg = f"must be text, found {value!r}"
        raise ValueError(msg)
    return value


def flag(value: object) -> bool:
    """A bool, or one of the usual words for it."""
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in _YES | _NO:
        msg = f"must be true or false, found {value!r}"
        raise ValueError(msg)
    return word in _YES


def whole(low: int, high: int) -> Parse[int]:
    """An integer within bounds, both included."""

    def parse(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = low - 1
        if isinstance(value, bool) or not low <= number <= high:
            msg = f"must be an integer from {low} to {high}, found {value!r}"
            raise ValueError(msg)
        return number

    return parse


def seconds(value: object) -> int:
    """A length of time such as ``90d``, ``12h``, ``30m`` or ``45s``, in seconds, above zero."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", str(value), re.ASCII)
    if found is None or int(found[1]) == 0:
        msg = f"must be a length of time such as 90d, 12h or 30m, found {value!r}"
        raise ValueError(msg)
    return int(found[1]) * _SECONDS[found[2]]


def file(value: object) -> Path:
    """A file that exists."""
    path = Path(str(value))
    if not path.is_file():
        msg = f"names no file: {path}"
        raise ValueError(msg)
    return path


def address(value: object) -> str:
    """``HOST:PORT``, the port from 0 (any free one) to 65535, an IPv6 host in brackets."""
    split_address(str(value))
    return str(value)


def capabilities(value: object) -> tuple[str, ...]:
    """Capabilities, as a sequence or as a comma list."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        msg = f"must be a list, found {value!r}"
        raise ValueError(msg)  # noqa: TRY004 - parsers raise ValueError alone
    found = tuple(str(part).strip() for part in parts)
    for name in found:
        if name != names.CAPABILITY:
            msg = f"can leave out {names.CAPABILITY} only, found {name!r}"
            raise ValueError(msg)
    return found


def trace_template(value: object) -> str:
    """An address with ``{trace_id}``, and ``{span_id}`` if wanted, in it."""
    template = text(value)
    unknown = set(re.findall(r"{([^{}]*)}", template)) - {"trace_id", "span_id"}
    if not template.startswith(("http://", "https://")) or "{trace_id}" not in template or unknown:
        msg = f"must be an http address with {{trace_id}} and at most {{span_id}}, found {value!r}"
        raise ValueError(msg)
    return template


def split_address(value: str) -> tuple[str, int]:
    """Host (without brackets) and port of an address; ValueError says the rule."""
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not (colon and bare and re.fullmatch(r"\d{1,5}", port, re.ASCII)) or (
        ":" in bare and not bracketed
    ):
        msg = f"must be HOST:PORT, found {value!r}"
        raise ValueError(msg)
    if int(port) > _MAX_PORT:
        msg = f"must have a port from 0 to {_MAX_PORT}, found {value!r}"
        raise ValueError(msg)
    return bare, int(port)


def is_loopback(value: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    host, _ = split_address(value)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# -- serve ------------------------------------------------------------------------------------
def default_database_url() -> str:
    """SQLite in the user's data folder, which is created; needs the ``server`` extra."""
    from platformdirs import user_data_path  # noqa: PLC0415 - the base install has none

    path = user_data_path("flowmark-otel", appauthor=False, ensure_exists=True) / "flowmark.db"
    return f"sqlite:///{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What ``serve`` can be told (contract, sections 4 and 7).

    ``db``: URL of the store, empty for the user data folder; read ``database_url``.
    ``grpc``, ``http``, ``metrics``: ``HOST:PORT``, port 0 for any free one; no metrics address
    if None. ``tls_cert`` and ``tls_key``: PEM files, both or neither. ``retain``: seconds after
    its latest arrival that a run is kept, None for ever. ``max_request_bytes``: of a body, before
    and after decompression. ``without``: capabilities not to acknowledge (A21).
    ``trace_url``: template of links to a trace viewer. ``migrate``: bring an older schema up
    instead of refusing it. ``insecure_no_auth``: no keys, project ``default``, on loopback only.
    """

    prefix: ClassVar[str] = "FLOWMARK_SERVE_"
    removed: ClassVar[Mapping[str, str]] = {}

    db: str = setting(text, "", "store, such as sqlite:////var/lib/flowmark.db")
    grpc: str = setting(address, "127.0.0.1:4317", "address of OTLP over gRPC")
    http: str = setting(address, "127.0.0.1:4318", "address of OTLP over HTTP, API and pages")
    tls_cert: Path | None = setting(file, None, "certificate, PEM")
    tls_key: Path | None = setting(file, None, "private key of the certificate, PEM")
    insecure_no_auth: bool = setting(flag, default=False, description="no keys; loopback only")
    retain: int | None = setting(seconds, None, "how long a run is kept, such as 90d")
    workers: int = setting(whole(1, 64), 1, "processes that take requests")
    max_request_bytes: int = setting(
        whole(1024, 1 << 30), 64 << 20, "largest body, also after decompression"
    )
    migrate: bool = setting(flag, default=False, description="bring an older schema up")
    metrics: str | None = setting(address, None, "address of Prometheus metrics")
    trace_url: str | None = setting(trace_template, None, "link to a trace, with {trace_id}")
    without: tuple[str, ...] = setting(capabilities, (), "capability not to acknowledge")

    @property
    def database_url(self) -> str:
        """The URL of the store, the default one included."""
        return self.db or default_database_url()

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities to acknowledge."""
        return tuple(name for name in (names.CAPABILITY,) if name not in self.without)

    def faults(self) -> list[str]:
        """Faults between settings: half a TLS pair, no keys on an address others can reach."""
        found = []
        if (self.tls_cert is None) != (self.tls_key is None):
            found.append("tls_cert and tls_key go together")
        if self.insecure_no_auth:
            found += [
                f"insecure_no_auth needs a loopback address, found {name} {value}"
                for name, value in (("grpc", self.grpc), ("http", self.http))
                if not is_loopback(value)
            ]
        return found
