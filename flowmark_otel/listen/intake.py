"""What both transports share: who is calling, bounded bodies, bounded time, one way to refuse.

Order of a request, on both: authenticate, admit, read, decompress, judge, answer. Nothing is read
from a caller that has no key, so that a large body costs nobody but its sender.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from flowmark_otel import names
from flowmark_otel.errors import (
    Forbidden,
    RequestError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unparsable,
)
from flowmark_otel.listen.admission import Admission, Ticket
from flowmark_otel.listen.memory import give_back_soon
from flowmark_otel.listen.protocol import Accepting, Encoding, Reply, Signal
from flowmark_otel.listen.reads import Reads
from flowmark_otel.model import Principal
from flowmark_otel.wire.inflate import gunzip
from flowmark_otel.wire.outcome import ANSWERS, Answer, outcome_of

MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024
READ_SECONDS: Final = 60.0
MAX_STATUS_IDS: Final = 1000
MAX_STATUS_BYTES: Final = 4 * 1024 * 1024

_INLINE: Final = 16 * 1024
_SHOWN_FRAMES: Final = 3

_log = logging.getLogger("flowmark_otel.listen")

_Found = TypeVar("_Found")


class Refusal(NamedTuple):
    """A request refused as a whole; ``retry_after`` in seconds, None where no try can help."""

    answer: Answer
    message: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Intake:
    """The door of one backend or collector; both transports share it.

    Its state is in ``admission`` and ``reads``.
    ``max_request_bytes`` bounds a body, before and after decompression. ``read_timeout`` bounds
    the arrival of one body, ``judge_timeout`` its judgement; both in seconds.
    """

    accepting: Accepting
    max_request_bytes: int = MAX_REQUEST_BYTES
    read_timeout: float = READ_SECONDS
    judge_timeout: float = 120.0
    admission: Admission = field(default_factory=lambda: Admission(after_large=give_back_soon))
    reads: Reads = field(default_factory=Reads)

    def authenticate(self, authorizations: list[str]) -> Principal:
        """Who is calling; a request that names two keys is nobody's (contract, "Projects")."""
        if len(authorizations) > 1:
            msg = "more than one authorization was given"
            raise Unauthenticated(msg)
        return self.accepting.authenticate(authorizations[0] if authorizations else None)

    def authenticate_export(self, authorizations: list[str], origins: list[str]) -> Principal:
        """Who sends; ``origins`` are the values of the ``origin`` header.

        Raises Forbidden where a browser key comes from anywhere but a page it names (A20).
        """
        principal = self.authenticate(authorizations)
        if principal.kind == names.KEY_BROWSER and (
            len(origins) != 1 or origins[0] not in principal.pages
        ):
            msg = "a browser key may send only from pages of the origins it was made for"
            raise Forbidden(msg)
        return principal

    def authenticate_query(self, authorizations: list[str]) -> Principal:
        """Who asks for capabilities or status; closed to browser keys (contract, section 4)."""
        principal = self.authenticate(authorizations)
        if principal.kind == names.KEY_BROWSER:
            msg = "browser keys may not ask for capabilities or status"
            raise Forbidden(msg)
        return principal

    async def read(self, body: Awaitable[_Found]) -> _Found:
        """What arrives within ``read_timeout``; raises Unavailable where it does not."""
        try:
            return await asyncio.wait_for(body, self.read_timeout)
        except asyncio.TimeoutError as error:
            msg = f"the request did not arrive within {self.read_timeout:g} seconds"
            raise Unavailable(msg) from error

    async def inflate(self, body: bytes, ticket: Ticket, limit: int | None = None) -> bytes:
        """The gunzipped body, held by the ticket; a large one is gunzipped off the loop."""
        bound = self.max_request_bytes if limit is None else limit
        if len(body) <= _INLINE:
            return gunzip(body, bound, ticket.grow)
        return await asyncio.to_thread(gunzip, body, bound, ticket.grow)

    async def accept(
        self,
        signal: Signal,
        encoding: Encoding,
        body: bytes,
        principal: Principal,
        user_agent: str | None,
        ticket: Ticket,
    ) -> Reply:
        """Judge one body within ``judge_timeout``; raises RequestError where it is refused."""
        if len(body) > self.max_request_bytes:
            raise self.too_large()
        ticket.judge()
        judging = self.accepting.accept(signal, encoding, body, principal, user_agent)
        return await self._in_time(judging)

    async def status(
        self, event_ids: list[str], principal: Principal
    ) -> list[tuple[str, str, str | None, str | None]]:
        """What became of at most 1,000 events, in the order asked (contract, section 4)."""
        if len(event_ids) > MAX_STATUS_IDS:
            msg = f"at most {MAX_STATUS_IDS} event ids can be asked for, found {len(event_ids)}"
            raise Unparsable(msg)
        return await self._in_time(self.accepting.status(event_ids, principal))

    def too_large(self, limit: int | None = None) -> TooLarge:
        """The error for a body over the limit."""
        bound = self.max_request_bytes if limit is None else limit
        return TooLarge(f"the request is over the limit of {bound} bytes")

    async def _in_time(self, judging: Awaitable[_Found]) -> _Found:
        try:
            return await asyncio.wait_for(judging, self.judge_timeout)
        except asyncio.TimeoutError as error:
            msg = f"not judged within {self.judge_timeout:g} seconds"
            raise Unavailable(msg) from error


def refusal(error: Exception, where: str) -> Refusal:
    """How an error is answered; one that nobody foresaw is logged and reads as unavailable.

    Its message is not logged, since drivers quote the values they were given. The error's traces
    are cut: they hold the request's body, in a cycle that may live for many requests more.
    """
    told = error
    if not isinstance(error, RequestError):
        frames = traceback.extract_tb(error.__traceback__)[-_SHOWN_FRAMES:]
        shown = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
        _log.error("%s failed: %s in %s", where, type(error).__name__, shown)
        error = Unavailable("the request could not be judged")
    answer = ANSWERS[outcome_of(error)]
    _let_go(told)
    retry_after = None if error.permanent else error.retry_after
    return Refusal(answer, str(error), retry_after)


def _let_go(error: BaseException) -> None:
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if each is not None and each.__traceback__ is not None:
            each.__traceback__ = None
            chain += (each.__cause__, each.__context__)
