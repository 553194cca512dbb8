"""Pure: whether a request of a page is forwarded, and what it is answered where it is not.

Reads a body with the same code as the backend, so both see the same names in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.errors import Forbidden, RequestError, TooLarge, UnsupportedMedia
from flowmark_otel.fold import fold_log, fold_signals, fold_span
from flowmark_otel.model import Envelope, LogRecord, Receipt, Refused, Rejection, Span
from flowmark_otel.proxy.answer import FORMS, Answer, plain, rejected
from flowmark_otel.signals import ANY
from flowmark_otel.wire import decode
from flowmark_otel.wire.receipt import MAX_REJECTIONS

TRACES: Final = "/v1/traces"
LOGS: Final = "/v1/logs"
PATHS: Final = (TRACES, LOGS)

_UNIMPLEMENTED: Final = 12  # gRPC
_METHOD_NOT_ALLOWED: Final = 405
_NAMING_KEYS: Final = (names.WORKFLOW_NAME, names.RETRY_OF_WORKFLOW_NAME)
_SHOWN: Final = 60


class Head(NamedTuple):
    """What is read of a request before its body; header values are empty where absent.

    ``length`` is None where the request does not say it. ``site`` is ``sec-fetch-site``.
    """

    method: str
    content_type: str
    coding: str
    length: int | None
    site: str

    @property
    def kind(self) -> str:
        """The content type without its parameters."""
        return self.content_type.partition(";")[0].strip().lower()

    @property
    def zipped(self) -> bool:
        """Whether the body is gzipped."""
        return self.coding.strip().lower() == "gzip"


class Event(NamedTuple):
    """An event of a request: the position of its item, its id, and the workflows it names.

    ``signalled``: a signal makes it, if the backend reads that one; no receipt counts those.
    """

    position: int
    event_id: str
    workflows: tuple[str, ...]
    signalled: bool = False


def method_refused(head: Head) -> Answer | None:
    """The answer to any method but POST."""
    if head.method == "POST":
        return None
    message = f"{head.method[:_SHOWN]} is not allowed here"
    allow = (("allow", "POST"),)
    return plain(_METHOD_NOT_ALLOWED, _UNIMPLEMENTED, message, head.kind, allow)


def check_head(head: Head, limit: int) -> None:
    """Raises RequestError where a request is refused before its body is read.

    What another site makes a browser send is refused: the proxy is for pages of its own origin.
    """
    if head.site not in {"", "same-origin"}:
        msg = "only pages of this origin may send here"
        raise Forbidden(msg)
    if head.kind not in FORMS:
        msg = "the content type must be application/x-protobuf or application/json"
        raise UnsupportedMedia(msg)
    if not head.zipped and head.coding.strip().lower() not in {"", "identity"}:
        msg = "the content encoding must be gzip or identity"
        raise UnsupportedMedia(msg)
    if head.length is not None and head.length > limit:
        raise too_large(limit)


def too_large(limit: int) -> RequestError:
    """The error for a body over the limit."""
    return TooLarge(f"the request is over the limit of {limit} bytes")


def body_refused(
    path: str, content_type: str, body: bytes, allowed: Collection[str]
) -> Answer | None:
    """The answer to a request that names a workflow which is not allowed; None to forward it.

    Every workflow counts: of a run or operation, by default its service, and the target of a retry
    reference, whose page would show the visitor's run. Raises Unparsable.
    """
    events = list(events_of(path, FORMS[content_type], body))
    strange = next(
        (name for each in events for name in each.workflows if name not in allowed), None
    )
    if strange is None:
        return None
    reason = f"it names workflow {strange[:_SHOWN]!r}, which this proxy does not let through"
    counted = [each for each in events if not each.signalled]
    receipt = Receipt(
        received=len(counted),
        rejected=len(counted),
        rejections=tuple(_rejection(each, allowed, reason) for each in counted[:MAX_REJECTIONS]),
        rejected_items=len({each.position for each in counted}),
    )
    return rejected(receipt, content_type, f"refused: {reason}")


def events_of(path: str, encoding: str, body: bytes) -> Iterator[Event]:
    """The events that the backend would make of a request. Raises Unparsable, TooLarge.

    Whatever signals it reads: those of any setting are among them.
    """
    if path == TRACES:
        request = decode.decode_traces(body, encoding, ANY)
    else:
        request = decode.decode_logs(body, encoding)
    for position, _, record, _ in request.marked:
        folded = _folded(record)
        signalled = not folded and isinstance(record, Span)
        if signalled and isinstance(record, Span):
            folded = fold_signals(record, ANY)
        for event in folded:
            named: Mapping[str, object] = {}
            if isinstance(event, Envelope):
                named = event.attributes
            elif not isinstance(record, Refused):
                named = record.attributes
            found = tuple(name for key in _NAMING_KEYS if isinstance(name := named.get(key), str))
            yield Event(position, event.event_id, found, signalled)


def _folded(record: Span | LogRecord | Refused) -> list[Envelope | Refused]:
    if isinstance(record, Span):
        return fold_span(record)
    event = fold_log(record) if isinstance(record, LogRecord) else record
    return [] if event is None else [event]


def _rejection(event: Event, allowed: Collection[str], reason: str) -> Rejection:
    own = all(name in allowed for name in event.workflows)
    message = f"refused with its request: {reason}" if own else reason
    return Rejection(
        event.event_id, names.INVALID, message, -1 if event.event_id else event.position
    )
