"""What each kind of component can be told, one frozen model each (contract, section 9).

Times end in ``_ms``, sizes in ``_bytes`` or a unit. Keys that no model names are faults.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from typing_extensions import Self

from flowmark_otel.collector.config.environment import FromEnvironment
from flowmark_otel.collector.config.values import (
    Address,
    Directory,
    ErrorNames,
    File,
    HeaderName,
    HeaderValue,
    PathName,
    SignalList,
    Token,
    WebAddress,
    Whole,
)

HOUR_MS: Final = 3_600_000
MAX_BODY_MIB: Final = 1024


class Options(BaseModel):
    """Base of all: unknown keys are refused, nothing is changed after.

    What a file does not say is its default; a section that is there and empty is all defaults.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, found: object) -> object:
        """As in the Collector ``retry:`` alone is a section of defaults, ``path:`` is not set."""
        if not isinstance(found, dict):
            return {} if found is None else found
        sections = {name for name, field in cls.model_fields.items() if _is_section(field)}
        return {
            key: {} if _is_empty(value) and key in sections else value
            for key, value in found.items()
            if not _is_empty(value) or key in sections or key not in cls.model_fields
        }


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, FromEnvironment) and not value)


def _is_section(field: FieldInfo) -> bool:
    return any(issubclass(kind, Options) for kind in classes(field))


def classes(field: FieldInfo) -> list[type]:
    """The classes that a field's value may be of."""
    kinds = (field.annotation, *get_args(field.annotation))
    # To Python 3.10 tuple[str, ...] is a type, too.
    return [kind for kind in kinds if isinstance(kind, type) and get_origin(kind) is None]


def _pair(cert_file: object, key_file: object) -> None:
    if (cert_file is None) != (key_file is None):
        msg = "cert_file and key_file go together; set both or neither"
        raise ValueError(msg)


class Retry(Options):
    """Tries of one message at one node, the first included (C2)."""

    max_attempts: Annotated[Whole, Field(ge=1, le=10)] = 3
    backoff_ms: Annotated[Whole, Field(ge=1, le=HOUR_MS)] = 200
    max_backoff_ms: Annotated[Whole, Field(ge=1, le=HOUR_MS)] = 10_000
    retry_on: ErrorNames = ()
    no_retry_on: ErrorNames = ()

    @model_validator(mode="after")
    def _together(self) -> Self:
        both = sorted(set(self.retry_on) & set(self.no_retry_on))
        if both:
            msg = f"{both[0]} is in retry_on and in no_retry_on; leave it in one of them"
            raise ValueError(msg)
        if self.max_backoff_ms < self.backoff_ms:
            msg = (
                f"max_backoff_ms {self.max_backoff_ms} is below backoff_ms {self.backoff_ms};"
                " raise the one or lower the other"
            )
            raise ValueError(msg)
        return self


class FailureBudget(Options):
    """More failed messages than that within the window fail the node (C3)."""

    max_failures: Annotated[Whole, Field(ge=0, le=1_000_000)]
    window_ms: Annotated[Whole, Field(ge=1, le=24 * HOUR_MS)]


class Policy(Options):
    """What a node does about failures; every exporter and connector has it (C1-C5).

    ``errors``: id of the ``errors`` connector that takes what is routed.
    """

    on_error: Literal["fail", "continue", "route"] = "fail"
    errors: str | None = None
    retry: Retry | None = None
    failure_budget: FailureBudget | None = None
    element_timeout_ms: Annotated[Whole, Field(ge=1, le=HOUR_MS)] = 10_000
    deadline_ms: Annotated[Whole, Field(ge=1, le=HOUR_MS)] = 60_000


class Tls(Options):
    """TLS of an exporter, as the OpenTelemetry Collector names it."""

    insecure: bool = False
    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        _pair(self.cert_file, self.key_file)
        return self


class ServerTls(Options):
    """TLS of a receiver: certificate chain and private key, PEM files, both."""

    cert_file: File
    key_file: File


class Spool(Options):
    """A folder that takes custody of envelopes (``acknowledge: on_spool``)."""

    directory: Directory
    max_bytes: Annotated[Whole, Field(ge=1 << 20, le=1 << 50)] = 1 << 30


class Remote(Policy):
    """An exporter that sends: where to, with which headers, under which TLS.

    As in the Collector the scheme of ``endpoint`` says whether TLS is used; without one, which only
    gRPC can do, ``tls.insecure`` does.
    """

    endpoint: WebAddress
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict, repr=False)
    tls: Tls = Tls()

    @property
    def secure(self) -> bool:
        """Whether TLS is used."""
        scheme, found, _ = self.endpoint.partition("://")
        return scheme == "https" if found else not self.tls.insecure

    @property
    def url(self) -> str:
        """The endpoint with its scheme, ``http`` or ``https``."""
        host = self.endpoint.rpartition("://")[2]
        return f"{'https' if self.secure else 'http'}://{host}"

    @model_validator(mode="after")
    def _tls(self) -> Self:
        if not self.secure and (self.tls.ca_file or self.tls.cert_file):
            msg = "has certificates in tls, and an endpoint without TLS; set https:// or no tls"
            raise ValueError(msg)
        if not self.over_grpc and "://" not in self.endpoint:
            msg = "has an endpoint without a scheme; write http:// or https:// before it"
            raise ValueError(msg)
        return self

    @property
    def over_grpc(self) -> bool:
        """Whether gRPC is spoken."""
        return False


class OtlpExporter(Remote):
    """Telemetry as it is; see the two below."""

    compression: Literal["gzip", "none"] = "none"


class OtlpHttpExporter(OtlpExporter):
    """``otlp_http`` (alias ``otlphttp``)."""


class OtlpGrpcExporter(OtlpExporter):
    """``otlp_grpc`` (alias ``otlp``)."""

    @property
    def over_grpc(self) -> bool:
        """Always."""
        return True


class FlowmarkExporter(Remote):
    """``flowmark``: envelopes to a backend or another collector, the receipt checked."""

    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    spool: Spool | None = None

    @property
    def over_grpc(self) -> bool:
        """By ``protocol``."""
        return self.protocol == "grpc"


class FileExporter(Policy):
    """``file``: telemetry as OTLP/JSON, a request a line; letters as they are documented."""

    path: PathName


class FlowmarkConnector(Policy):
    """``flowmark``: validates and folds traces."""

    signals: SignalList = "safe"


class ErrorsConnector(Options):
    """``errors``: what nodes route to; a pipeline receives from it."""


class Auth(Options):
    """Which extension says who may send, as the OpenTelemetry Collector names it."""

    authenticator: str


class GrpcServer(Options):
    """OTLP over gRPC in. ``max_recv_msg_size_mib`` bounds a request, also after decompression."""

    endpoint: Address = "localhost:4317"
    tls: ServerTls | None = None
    auth: Auth | None = None
    max_recv_msg_size_mib: Annotated[Whole, Field(ge=1, le=MAX_BODY_MIB)] = 64

    @property
    def max_bytes(self) -> int:
        """The same in bytes."""
        return self.max_recv_msg_size_mib << 20


class HttpServer(Options):
    """OTLP over HTTP in. ``max_request_body_size``: bytes, also after decompression."""

    endpoint: Address = "localhost:4318"
    tls: ServerTls | None = None
    auth: Auth | None = None
    max_request_body_size: Annotated[Whole, Field(ge=1024, le=MAX_BODY_MIB << 20)] = 64 << 20

    @property
    def max_bytes(self) -> int:
        """The same, named as for gRPC."""
        return self.max_request_body_size


class Protocols(Options):
    """What an ``otlp`` receiver listens to: one of them or both."""

    grpc: GrpcServer | None = None
    http: HttpServer | None = None

    @model_validator(mode="after")
    def _any(self) -> Self:
        if self.grpc is None and self.http is None:
            msg = "names no protocol; set grpc, http or both"
            raise ValueError(msg)
        return self


class OtlpReceiver(Options):
    """``otlp``: where services send."""

    protocols: Protocols

    @property
    def servers(self) -> tuple[GrpcServer | HttpServer, ...]:
        """The protocols that are on."""
        both = (self.protocols.grpc, self.protocols.http)
        return tuple(each for each in both if each is not None)


class BearerTokenAuth(Options):
    """The extension ``bearertokenauth``: tokens of which a sender has to give one.

    Exactly one of ``token``, ``tokens``, and ``filename``: a file with one token a line, read again
    when it changes.
    """

    scheme: Literal["Bearer"] = "Bearer"
    token: Token | None = Field(default=None, repr=False)
    tokens: tuple[Token, ...] = Field(default=(), repr=False)
    filename: File | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [self.token is not None, bool(self.tokens), self.filename is not None]
        if sum(given) != 1:
            msg = "needs exactly one of token, tokens and filename"
            raise ValueError(msg)
        return self
