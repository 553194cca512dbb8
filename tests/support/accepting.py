"""A strict double of the party behind a listener: keeps what it was given, answers to order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from starlette.applications import Starlette

from flowmark_otel import names
from flowmark_otel.errors import Forbidden, Unauthenticated
from flowmark_otel.listen.admission import Admission
from flowmark_otel.listen.http import routes
from flowmark_otel.listen.intake import Intake
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.listen.reads import Reads
from flowmark_otel.listen.serving import Listeners
from flowmark_otel.model import Principal, Receipt
from flowmark_otel.wire import outcome, receipt
from tests.support.loop import loop_thread

BACKEND_ID = "double"
KEY = "Bearer ingest"
_KINDS = {KEY: names.KEY_INGEST, "Bearer browser": names.KEY_BROWSER}


class Call(NamedTuple):
    """One accepted request, as the listener handed it over."""

    signal: Signal
    encoding: Encoding
    body: bytes
    principal: Principal
    user_agent: str | None


class Double:
    """Accepts every body with an empty receipt, or does what ``answer`` says."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answer: Callable[[Call], Awaitable[Reply]] | None = None

    def authenticate(self, authorization: str | None) -> Principal:
        """``Bearer ingest`` and ``Bearer browser`` may send, ``Bearer read`` may not."""
        if authorization == "Bearer read":
            msg = "a read key may not send"
            raise Forbidden(msg)
        if authorization not in _KINDS:
            msg = "no such key"
            raise Unauthenticated(msg)
        return Principal(1, "default", _KINDS[authorization])

    async def accept(
        self,
        signal: Signal,
        encoding: Encoding,
        body: bytes,
        principal: Principal,
        user_agent: str | None,
    ) -> Reply:
        """Keep the call and answer."""
        call = Call(signal, encoding, body, principal, user_agent)
        self.calls.append(call)
        if self.answer is not None:
            return await self.answer(call)
        found = receipt.encode(Receipt(backend_id=BACKEND_ID), encoding.wire, signal.value)
        return Reply(outcome.OK, found)

    def capabilities(self) -> tuple[tuple[str, ...], str]:
        """``attempts-v1``, and this double's id."""
        return (names.CAPABILITY,), BACKEND_ID

    async def status(
        self, event_ids: list[str], principal: Principal
    ) -> list[tuple[str, str, str | None, str | None]]:
        """Every id that begins with ``op-`` is stored, every other unknown."""
        assert principal.project == "default"
        return [
            (each, names.STORED, "00" * 32, None)
            if each.startswith("op-")
            else (each, names.STATE_UNKNOWN, None, None)
            for each in event_ids
        ]


class Listening(NamedTuple):
    """A double, and where it listens: ``HOST:PORT``."""

    double: Double
    grpc: str
    http: str


@contextmanager
def listening(
    *,
    max_request_bytes: int = 1 << 20,
    read_timeout: float = 20.0,
    judge_timeout: float = 20.0,
    admission: Admission | None = None,
    reads: Reads | None = None,
) -> Iterator[Listening]:
    """A double behind both transports on loopback."""
    double = Double()
    intake = Intake(
        double,
        max_request_bytes,
        read_timeout,
        judge_timeout,
        admission or Admission(),
        reads or Reads(),
    )
    listeners = Listeners(
        intake,
        Starlette(routes=routes(intake)),
        grpc_address="127.0.0.1:0",
        http_address="127.0.0.1:0",
    )
    with loop_thread() as loop:
        loop.run(listeners.start())
        try:
            yield Listening(double, listeners.grpc_address, listeners.http_address)
        finally:
            loop.run(listeners.stop())
