"""OTLP over gRPC, the ``flowmark.v1.Acceptance`` service and the standard health service.

Handlers are generic and take raw bytes: a stock handler answers a malformed message with INTERNAL
before it is asked. They are ``stream_unary``, the same on the wire as ``unary_unary``, because such
a handler runs before the message is read and can refuse a caller without a key for nothing.
Messages are gunzipped here and not by grpc, which answers corrupt gzip with INTERNAL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2_grpc

from flowmark_otel.errors import Unparsable
from flowmark_otel.listen.admission import Ticket
from flowmark_otel.listen.connections import MAX_CONNECTIONS
from flowmark_otel.listen.health import Health, Ready
from flowmark_otel.listen.intake import MAX_STATUS_BYTES, Intake, Refusal, refusal
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.wire.inflate import GZIP_MAGIC
from flowmark_otel.wire.outcome import ANSWERS, OK
from flowmark_otel.wire.pb import acceptance_pb2
from flowmark_otel.wire.status import decode_status, encode_status, printable, retry_info

TRACES: Final = "opentelemetry.proto.collector.trace.v1.TraceService"
LOGS: Final = "opentelemetry.proto.collector.logs.v1.LogsService"
ACCEPTANCE: Final = "flowmark.v1.Acceptance"

STATUS_TRAILER: Final = "grpc-status-details-bin"
RETRY_TRAILER: Final = "google.rpc.retryinfo-bin"

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_IDENTITY_AND_GZIP: Final = 0b101
_MARGIN: Final = 1024

BOUNDS: Final = (
    # What is not read yet is held back by its sender: no more than this of each message comes.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1024 * 1024),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.absolute_max_metadata_size", 64 * 1024),
    ("grpc.max_concurrent_streams", 128),
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    # Whoever connects and says nothing, or stops answering, is let go.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.settings_timeout", 10_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    # Clients may ask whether the connection stands, with or without calls.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.max_connection_idle_ms", 120_000),
)

_Context = grpc.aio.ServicerContext[bytes, bytes]
_Judge = Callable[[_Context], Awaitable[bytes]]
_Handler = Callable[[object, _Context], Awaitable[bytes]]


class _FailedError(Exception):
    """A judged request whose answer is an error: code, encoded status."""

    def __init__(self, code: int, status: bytes) -> None:
        super().__init__(code)
        self.code = code
        self.status = status


def new_server(
    intake: Intake,
    ready: Ready,
    *,
    shared: bool = False,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> tuple[grpc.aio.Server, Health]:
    """A server with all services, not yet bound or started, and its health service.

    ``shared``: other processes may listen on the same port.
    """
    server = grpc.aio.server(
        interceptors=interceptors,
        options=[
            ("grpc.so_reuseport", int(shared)),
            # A little over the limit is read, so that the refusal is our own.
            ("grpc.max_receive_message_length", intake.max_request_bytes + _MARGIN),
            ("grpc.per_message_decompression", 0),
            ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_AND_GZIP),
            *BOUNDS,
        ],
    )
    services = _Services(intake)
    for name, methods in services.methods().items():
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            method: grpc.stream_unary_rpc_method_handler(_guarded(judge, f"{name}/{method}"))
            for method, judge in methods.items()
        }
        handler = grpc.method_handlers_generic_handler(name, handlers)
        server.add_generic_rpc_handlers((handler,))
    health = Health(ready, ("", TRACES, LOGS, ACCEPTANCE))
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    return server, health


class _Services:
    """The methods; they share the intake and keep no state."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def methods(self) -> dict[str, dict[str, _Judge]]:
        return {
            TRACES: {"Export": lambda context: self._export(context, Signal.TRACES)},
            LOGS: {"Export": lambda context: self._export(context, Signal.LOGS)},
            ACCEPTANCE: {"Capabilities": self._capabilities, "Status": self._status},
        }

    async def _export(self, context: _Context, signal: Signal) -> bytes:
        principal = self._intake.authenticate_export(_values(context, "authorization"), [])
        user_agent = next(iter(_values(context, "user-agent")), None)
        with self._intake.admission.enter() as ticket:
            body = await self._message(context, ticket)
            reply = await self._intake.accept(
                signal, Encoding.PROTOBUF, body, principal, user_agent, ticket
            )
        return _success(reply)

    async def _capabilities(self, context: _Context) -> bytes:
        self._intake.authenticate_query(_values(context, "authorization"))
        with self._intake.admission.enter() as ticket:
            question = await self._message(context, ticket, MAX_STATUS_BYTES)
            _parse(acceptance_pb2.CapabilitiesRequest(), question)
        capabilities, backend_id = self._intake.accepting.capabilities()
        answer = acceptance_pb2.CapabilitiesResponse(
            capabilities=capabilities, backend_id=backend_id
        )
        return answer.SerializeToString()

    async def _status(self, context: _Context) -> bytes:
        principal = self._intake.authenticate_query(_values(context, "authorization"))
        request = acceptance_pb2.StatusRequest()
        with self._intake.admission.enter() as ticket:
            _parse(request, await self._message(context, ticket, MAX_STATUS_BYTES))
            found = await self._intake.status(list(request.event_ids), principal)
        answer = acceptance_pb2.StatusResponse()
        for event_id, state, digest, code in found:
            answer.events.add(event_id=event_id, state=state, digest=digest or "", code=code or "")
        return answer.SerializeToString()

    async def _message(self, context: _Context, ticket: Ticket, limit: int | None = None) -> bytes:
        """The one message of the call, gunzipped; neither form of it passes ``limit`` bytes.

        With grpc's own decompression off its flag is not to be seen; but no message of ours can
        begin with the first byte of gzip's magic number, which has wire type 7.
        """
        reading = self._intake.reads.read(lambda: _one_message(context))
        body = await self._intake.read(reading)
        if limit is not None and len(body) > limit:
            raise self._intake.too_large(limit)
        ticket.grow(len(body))
        if not body.startswith(GZIP_MAGIC):
            return body
        return await self._intake.inflate(body, ticket, limit)


def _guarded(judge: _Judge, where: str) -> _Handler:
    async def handle(_requests: object, context: _Context) -> bytes:
        try:
            return await judge(context)
        except _FailedError as failed:
            code, status, retry_after = failed.code, failed.status, None
        except Exception as error:  # noqa: BLE001 - the edge: whatever happens is answered
            code, status, retry_after = _refused(refusal(error, where))
        return await _abort(context, code, status, retry_after)

    return handle


async def _one_message(context: _Context) -> bytes:
    body: object = await context.read()
    if not isinstance(body, bytes):
        # Also what is left of a message that grpc refused for its size, answered already.
        msg = "the call carries no message"
        raise Unparsable(msg)
    further: object = await context.read()
    if isinstance(further, bytes):
        msg = "the call carries more than one message"
        raise Unparsable(msg)
    return body


def _success(reply: Reply) -> bytes:
    if reply.outcome == OK:
        return reply.body
    raise _FailedError(ANSWERS[reply.outcome].grpc, reply.body)


def _refused(refused: Refusal) -> tuple[int, bytes, float | None]:
    status = encode_status(
        refused.answer.grpc, refused.message, "protobuf", None, refused.retry_after
    )
    return refused.answer.grpc, status, refused.retry_after


async def _abort(
    context: _Context, code: int, status: bytes, retry_after: float | None
) -> NoReturn:
    """End the call. A stock Python client reads the second trailer only, all others the first."""
    trailers = [(STATUS_TRAILER, status)]
    if retry_after is not None:
        trailers.append((RETRY_TRAILER, retry_info(retry_after)))
    text = printable(decode_status(status, "protobuf").message)
    await context.abort(_CODES[code], text, tuple(trailers))


def _values(context: _Context, key: str) -> list[str]:
    found = context.invocation_metadata() or ()
    return [value for name, value in found if name == key and isinstance(value, str)]


def _parse(
    message: acceptance_pb2.CapabilitiesRequest | acceptance_pb2.StatusRequest, body: bytes
) -> None:
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        msg = f"the message is no {message.DESCRIPTOR.full_name}"
        raise Unparsable(msg) from error
