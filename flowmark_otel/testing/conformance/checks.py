"""What every transport has to do, each a check of its own; all that fail are reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from flowmark_otel import names
from flowmark_otel.deliver.transport import Answer, NoAnswer, Transport
from flowmark_otel.testing.conformance.peer import Export, Peer
from flowmark_otel.testing.conformance.serving import serve_http
from flowmark_otel.wire import outcome

TIMEOUT: Final = 0.5
"""Seconds for a request that gets no answer."""

PATIENCE: Final = 5.0
"""Seconds for every other request."""

_CONTENT_TYPES: Final = {"protobuf": "application/x-protobuf", "json": "application/json"}
_UNAVAILABLE: Final = outcome.ANSWERS[outcome.UNAVAILABLE].grpc
_BODIES: Final = (b'{"resourceLogs":[]}', bytes(range(256)) * 16, b"x" * (1 << 20))


def assert_transport_conforms(
    make_transport: Callable[[str], Transport],
    *,
    serve: Callable[[Peer], AbstractContextManager[str]] = serve_http,
) -> None:
    """Assert that a transport keeps the protocol ``deliver.Transport``; takes some seconds (A25).

    ``make_transport``: a new transport to the address that ``serve`` yields. ``serve``: runs a
    server that hands each logs export to ``peer.answer`` and carries the answer back, and each
    question about events to ``peer.statuses``; ``serve_http`` and ``serve_grpc`` come with this
    package, a transport that speaks something else brings its own. Raises AssertionError naming
    every check that failed.
    """
    failed: list[str] = []
    for check in _CHECKS:
        peer = Peer()
        with serve(peer) as address:
            transport = make_transport(address)
            try:
                check(transport, peer)
            except AssertionError as fault:
                failed.append(f"{check.__doc__} {fault}")
            except Exception as error:  # noqa: BLE001 - whatever it raises is its fault
                failed.append(f"{check.__doc__} It raised {type(error).__name__}: {error}")
            finally:
                peer.released.set()
                transport.close()
    if failed:
        raise AssertionError("\n".join([f"{len(failed)} checks failed:", *failed]))


def _it_knows_its_encoding(transport: Transport, _: Peer) -> None:
    """The encoding is protobuf or json."""
    _say(transport.encoding in _CONTENT_TYPES, f"It is {transport.encoding!r}.")


def _it_carries_bytes(transport: Transport, peer: Peer) -> None:
    """Every byte of a body arrives, with its content type."""
    content_type = _CONTENT_TYPES[transport.encoding]
    for body in _BODIES:
        peer.order(peer.stored)
        transport.send(body, content_type, PATIENCE)
        _say(peer.exports == [Export(body, content_type)], f"Not of {len(body)} bytes.")


def _it_hands_success_back(transport: Transport, peer: Peer) -> None:
    """The answer of a success comes back as it was sent."""
    _same(_send(transport), _told(peer.stored, transport))


def _it_hands_errors_back(transport: Transport, peer: Peer) -> None:
    """An error is an answer: status, body and the time to wait come back."""
    for row in outcome.ANSWERS:
        retry_after = 7 if row == outcome.UNAVAILABLE else None
        ordered = peer.failed(row, retry_after=retry_after)
        if row != outcome.OK:
            peer.order(ordered)
            _same(_send(transport), _told(ordered, transport))


def _it_tries_once(transport: Transport, peer: Peer) -> None:
    """It tries once: trying again is decided by others."""
    for order in (peer.failed(outcome.UNAVAILABLE), peer.broken):
        peer.order(order)
        _unanswered(transport, PATIENCE, success_is_wrong=False)
        _say(len(peer.exports) == 1, f"The server saw {len(peer.exports)} requests.")


def _it_follows_no_redirect(transport: Transport, peer: Peer) -> None:
    """It follows no redirect: one would carry the key along."""
    if peer.grpc:
        return
    peer.order(peer.redirected)
    answer = _send(transport)
    _say(len(peer.exports) == 1, f"The server saw {len(peer.exports)} requests.")
    _say(answer.status == peer.redirected(Export(b"", "")).status, f"It says {answer.status}.")


def _it_makes_no_answer_up(transport: Transport, peer: Peer) -> None:
    """Without a whole answer it raises NoAnswer, and the next request goes through."""
    peer.order(peer.broken)
    _unanswered(transport, PATIENCE)
    peer.order(peer.stored)
    _same(_send(transport), _told(peer.stored, transport))


def _it_keeps_its_time(transport: Transport, peer: Peer) -> None:
    """A request ends by its timeout, with NoAnswer and the reason timeout."""
    peer.order(peer.held)
    reason = _unanswered(transport, TIMEOUT)  # later a success comes, which is too late
    peer.released.set()
    _say(reason == names.REASON_TIMEOUT, f"The reason is {reason!r}.")
    peer.order(peer.stored)
    _same(_send(transport), _told(peer.stored, transport))


def _it_asks_what_became_of_events(transport: Transport, peer: Peer) -> None:
    """The status of events comes in the order asked; or NoAnswer, where it cannot be asked."""
    asked = ["s-2", "u-1", "r-1", "s-1"]
    try:
        found = transport.status(asked, PATIENCE)
    except NoAnswer:
        return
    _say(found == peer.statuses(asked), f"It says {found}.")


def _it_can_be_called_by_any_thread(transport: Transport, peer: Peer) -> None:
    """The thread that sends is not the one that made it, and closes it from yet another."""
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(_send(transport)), daemon=True)
    thread.start()
    thread.join(2 * PATIENCE)
    _say(len(found) == 1, "No answer came.")
    _same(found[0], _told(peer.stored, transport))


def _it_starts_anew_after_a_fork(transport: Transport, peer: Peer) -> None:
    """After after_fork it sends again."""
    _send(transport)
    transport.after_fork()
    _same(_send(transport), _told(peer.stored, transport))


def _it_can_be_closed_again(transport: Transport, _: Peer) -> None:
    """It can be closed more than once."""
    _send(transport)
    transport.close()
    transport.close()


_CHECKS: Final[Sequence[Callable[[Transport, Peer], None]]] = (
    _it_knows_its_encoding,
    _it_carries_bytes,
    _it_hands_success_back,
    _it_hands_errors_back,
    _it_tries_once,
    _it_follows_no_redirect,
    _it_makes_no_answer_up,
    _it_keeps_its_time,
    _it_asks_what_became_of_events,
    _it_can_be_called_by_any_thread,
    _it_starts_anew_after_a_fork,
    _it_can_be_closed_again,
)


def _send(transport: Transport) -> Answer:
    return transport.send(_BODIES[0], _CONTENT_TYPES[transport.encoding], PATIENCE)


def _told(ordered: Callable[[Export], Answer | None], transport: Transport) -> Answer | None:
    """What the peer answered."""
    return ordered(Export(_BODIES[0], _CONTENT_TYPES[transport.encoding]))


def _unanswered(transport: Transport, timeout: float, *, success_is_wrong: bool = True) -> str:
    """Send a request that gets no whole answer; the reason.

    On gRPC a lost connection is no exception but a code, which says the same.
    """
    try:
        answer = transport.send(_BODIES[0], _CONTENT_TYPES[transport.encoding], timeout)
    except NoAnswer as error:
        return error.reason
    no_answer = answer.grpc and answer.status == _UNAVAILABLE
    _say(no_answer or not success_is_wrong, f"It answers {answer.status}.")
    return names.REASON_UNAVAILABLE


def _same(found: Answer, told: Answer | None) -> None:
    if told is None:
        return
    _say(found.grpc == told.grpc, f"Answer.grpc is {found.grpc}.")
    _say(found.status == told.status, f"It says {found.status}, not {told.status}.")
    _say(found.body == told.body, f"The body of {told.status} is {found.body[:60]!r}.")
    for name, value in told.headers.items():
        given = found.headers.get(name)
        _say(given == value, f"{name} of {told.status} is {given!r}, not {value!r}.")
    if told.grpc:
        _say(found.message == told.message, f"The message is {found.message!r}.")


def _say(holds: bool, fault: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not holds:
        raise AssertionError(fault)
