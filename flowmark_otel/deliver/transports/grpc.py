"""OTLP over gRPC, by ``grpcio``: raw bytes, so that receipts come through as they are (D1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError, Message

from flowmark_otel import names
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver.transport import Answer, EventStatus, NoAnswer
from flowmark_otel.deliver.transports.headers import USER_AGENT, sent_headers
from flowmark_otel.wire.pb import acceptance_pb2

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
_EXPORT: Final = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_STATUS: Final = "/flowmark.v1.Acceptance/Status"
_CAPABILITIES: Final = "/flowmark.v1.Acceptance/Capabilities"
_DETAILS: Final = "grpc-status-details-bin"
_PORTS: Final = {"http": 80, "https": 443}
CHANNEL_OPTIONS: Final = (
    ("grpc.primary_user_agent", USER_AGENT),
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.enable_retries", 0),  # the policy is ours
    # A port that opens again is noticed as soon as the policy tries it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),  # so long may a connection take, TLS over a slow path
    ("grpc.max_reconnect_backoff_ms", 1000),
)

_HOP_SAID_TOO_LARGE: Final = "header with status: 413"

_Call = Callable[..., bytes]

_inherited: Final[list[grpc.Channel]] = []
"""Channels of a parent: neither used nor freed in the child, either could hang it."""


class GrpcTransport:
    """One channel to one endpoint."""

    encoding = "protobuf"

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._metadata = tuple(
            (name, value) for name, value in sent_headers(options).items() if name != "user-agent"
        )
        gzip = options.compression == "gzip"
        self._compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        self._channel: grpc.Channel | None = None

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """The answer to one export; raises NoAnswer."""
        del content_type  # gRPC has but one
        return self._call(_EXPORT, body, timeout)

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:
        """What became of these events; raises NoAnswer."""
        request = acceptance_pb2.StatusRequest(event_ids=event_ids)
        found = acceptance_pb2.StatusResponse()
        self._ask(_STATUS, request.SerializeToString(), timeout, found, "status")
        return [
            EventStatus(each.event_id, each.state, each.digest, each.code) for each in found.events
        ]

    def capabilities(self, timeout: float) -> tuple[tuple[str, ...], str]:
        """What the other side acknowledges, and its id; raises NoAnswer."""
        found = acceptance_pb2.CapabilitiesResponse()
        self._ask(_CAPABILITIES, b"", timeout, found, "capabilities")
        return tuple(found.capabilities), found.backend_id

    def _ask(self, method: str, body: bytes, timeout: float, into: Message, service: str) -> None:
        """Read the answer to a question into a message; raises NoAnswer."""
        answer = self._call(method, body, timeout)
        try:
            into.ParseFromString(answer.body)
        except DecodeError as error:
            msg = f"the answer is no {into.DESCRIPTOR.name}"
            raise NoAnswer(msg) from error
        if answer.status != 0:
            msg = f"the {service} service answered code {answer.status}: {answer.message}"
            raise NoAnswer(msg)

    def after_fork(self) -> None:
        """Leave the parent's channel alone; the next request makes another."""
        if self._channel is not None:
            _inherited.append(self._channel)
            self._channel = None

    def close(self) -> None:
        """Close the channel, which cancels a call under way."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _call(self, method: str, body: bytes, timeout: float) -> Answer:
        if self._channel is None:
            self._channel = self._new_channel()
        call = cast("_Call", self._channel.unary_unary(method))
        try:
            found = call(
                body,
                timeout=timeout,
                metadata=self._metadata,
                compression=self._compression,
            )
        except grpc.RpcError as error:
            return answer_of(error, timeout)
        except ValueError as error:  # the channel was closed meanwhile
            raise NoAnswer(str(error)) from error
        return Answer(0, found, grpc=True)

    def _new_channel(self) -> grpc.Channel:
        options = self._options
        target = target_of(options.endpoint)
        if urlsplit(options.endpoint).scheme != "https":
            return grpc.insecure_channel(target, CHANNEL_OPTIONS)
        read = [
            None if path is None else path.read_bytes()
            for path in (options.certificate, options.client_key, options.client_certificate)
        ]
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(*read), CHANNEL_OPTIONS)


def target_of(endpoint: str) -> str:
    """``HOST:PORT`` of an endpoint with a scheme, as gRPC names it."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    port = parts.port or _PORTS.get(parts.scheme, _PORTS["http"])
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def answer_of(error: Any, timeout: float) -> Answer:  # noqa: ANN401 - its types say too little
    """A failed call as an answer; raises NoAnswer if that is what it stands for."""
    code: int = error.code().value[0]
    headers = {key.lower(): value for key, value in error.trailing_metadata() or ()}
    details = headers.get(_DETAILS, b"")
    message = error.details() or ""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0] and not headers:
        msg = f"no answer within {timeout:.1f} s"
        raise NoAnswer(msg, names.REASON_TIMEOUT)
    if code == grpc.StatusCode.UNKNOWN.value[0] and _HOP_SAID_TOO_LARGE in message:
        # grpc knows no code for what a hop says in HTTP's own terms; its message names the status.
        code = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    body = details if isinstance(details, bytes) else b""
    return Answer(code, body, headers, grpc=True, message=message)
