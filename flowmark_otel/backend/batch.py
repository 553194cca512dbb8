"""The events of one request on their way to the writer, and what became of them.

What can be computed without the store is computed here, in the thread of the caller: the one
writer must not spend its time on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

from flowmark_otel import names
from flowmark_otel.backend.browsers import qualified
from flowmark_otel.backend.times import wrap_time
from flowmark_otel.model import Envelope, Refused, Rejection, Sender, Value, run_key

if TYPE_CHECKING:
    from flowmark_otel.backend.measured import Measured

MAX_REJECTION_MESSAGE: Final = 1024
_EVENT_OVERHEAD: Final = 512
_MAX_INT64: Final = 2**63 - 1
_ATTEMPT_KEYS: Final = tuple(sorted(names.ATTEMPT_START_KEYS))
_Attempt: TypeAlias = tuple[str | None, str | None, int | None]
_NO_ATTEMPT: Final[_Attempt] = (None, None, None)


class Arrival(NamedTuple):
    """One event of a request.

    ``item`` is the position of its span or log record. ``payload`` is what the item of a refused
    event carried, as far as it may be kept as evidence; JSON values only.
    """

    item: int
    sender: Sender
    event: Envelope | Refused
    payload: Mapping[str, object] | None = None


class Batch(NamedTuple):
    """The events of one request in their order, all of one project and origin.

    ``signalled``: the positions of items of which our own signal mappings made the events; no
    receipt counts them (contract, section 3). ``measured`` takes what the events add to metrics, to
    be read once their transaction is durable; None where nobody counts.
    """

    project_id: int
    origin: str
    arrivals: Sequence[Arrival]
    signalled: frozenset[int] = frozenset()
    measured: Measured | None = None


class Verdict(NamedTuple):
    """What became of the events of one request.

    ``rejections`` names every rejected event, in order; ``rejected_items`` counts the items with
    at least one of them. ``expired`` counts those of the duplicates whose run has a tombstone.
    ``told``: the same without what signal mappings made, as the sender is told; None: all of it.
    """

    stored: int
    duplicate: int
    rejections: list[Rejection]
    rejected_items: int
    expired: int = 0
    told: Verdict | None = None


class Claim(NamedTuple):
    """An event and what it says about its run and operation, ready to be judged.

    ``run`` is workflow and run id; ``operation`` is None for events of a run. ``fields`` is the
    JSON text of the attempt's start fields, None where the event carries none (an observed try).
    ``attributes`` is the JSON of all the envelope carries; ``sent_at`` is wrapped.
    """

    item: int
    sender: int
    envelope: Envelope
    run_key: bytes
    run: tuple[str, str]
    sent_at: int
    attributes: bytes
    operation: str | None
    operation_id: str | None
    fields: str | None
    group_id: str | None
    number: int | None


class Refusal(NamedTuple):
    """An event that was invalid before it came here; ``digest`` tells its payloads apart."""

    item: int
    sender: int
    code: str
    message: str
    event_id: str
    digest: bytes
    attributes: bytes | None


class Prepared(NamedTuple):
    """A batch whose events are ready to be judged; ``cost`` is about its size in bytes.

    ``names`` are the workflows that are named, with an empty text, and their operation names.
    ``signalled`` and ``measured`` as in ``Batch``.
    """

    project_id: int
    origin: str
    senders: list[Sender]
    events: list[Claim | Refusal]
    cost: int
    names: set[tuple[str, str]]
    signalled: frozenset[int] = frozenset()
    measured: Measured | None = None


def prepare(batch: Batch) -> Prepared:
    """Everything about a batch that does not depend on what is stored."""
    project_id, origin, arrivals, signalled, measured = batch
    senders: dict[Sender, int] = {}
    last: Sender | None = None
    number = 0
    run_keys: dict[tuple[str, str], bytes] = {}
    attempts: dict[tuple[Value | None, ...], _Attempt] = {}
    browser = origin == names.ORIGIN_BROWSER
    named: set[tuple[str, str]] = set()
    events: list[Claim | Refusal] = []
    cost = 0
    for item, sender, event, payload in arrivals:
        if sender is not last:  # events of one resource share the object; hashing it costs more
            last = sender
            number = senders.setdefault(sender, len(senders))
        if isinstance(event, Refused):
            refusal = _refusal(item, number, event, payload)
            cost += _EVENT_OVERHEAD + len(refusal.attributes or b"")
            events.append(refusal)
            continue
        # Any: validation let nothing but texts through where texts are wanted.
        attributes: dict[str, Any] = event.attributes
        part = event.part
        run = (attributes[names.WORKFLOW_NAME], attributes[names.RUN_ID])
        if browser:
            run = (qualified(origin, run[0]), run[1])
        key = run_keys.get(run)
        if key is None:
            key = run_keys[run] = run_key(project_id, origin, *run)
            named.add((run[0], ""))
        # A copy: keeping orjson's own, larger buffers costs ten times as much as making the text.
        encoded = bytes(memoryview(orjson.dumps(attributes)))
        cost += _EVENT_OVERHEAD + len(encoded)
        operation = operation_id = None
        attempt = _NO_ATTEMPT
        if not part.startswith("run-"):
            operation = attributes[names.OPERATION_NAME]
            operation_id = attributes[names.OPERATION_ID]
            named.add((run[0], operation))
            if event.event != names.ATTEMPT_OBSERVED:
                values = tuple(map(attributes.get, _ATTEMPT_KEYS))
                known = attempts.get(values)
                attempt = attempts[values] = known or _attempt(values)
        events.append(
            Claim(
                item,
                number,
                event,
                key,
                run,
                wrap_time(event.time_unix_nano),
                encoded,
                operation,
                operation_id,
                *attempt,
            )
        )
    return Prepared(project_id, origin, list(senders), events, cost, named, signalled, measured)


def duration_of(attributes: Mapping[str, Value]) -> int | None:
    """The duration that an end carries, in nanoseconds, where a signed column can hold it."""
    value = attributes.get(names.DURATION_NS)
    return value if isinstance(value, int) and 0 <= value <= _MAX_INT64 else None


def text_of(attributes: Mapping[str, Value], key: str) -> str | None:
    """A text that an envelope carries, None where it does not."""
    value = attributes.get(key)
    return None if value is None else str(value)


def _attempt(values: tuple[Value | None, ...]) -> _Attempt:
    found = {
        key: value for key, value in zip(_ATTEMPT_KEYS, values, strict=True) if value is not None
    }
    number = found.get(names.ATTEMPT_NUMBER)
    return (
        orjson.dumps(found).decode(),
        text_of(found, names.ATTEMPT_GROUP_ID),
        None if number is None else int(number),
    )


def _refusal(
    item: int, sender: int, refused: Refused, payload: Mapping[str, object] | None
) -> Refusal:
    # Escaped to ASCII: what was refused may hold what is no text at all.
    attributes = None if payload is None else json.dumps(payload, sort_keys=True).encode()
    message = _clean(refused.message)[:MAX_REJECTION_MESSAGE]
    event_id = _clean(refused.event_id)
    told = f"{refused.code}\0{event_id}\0{message}".encode()
    digest = hashlib.sha256(told + b"\0" + (attributes or b"")).digest()
    return Refusal(item, sender, refused.code, message, event_id, digest, attributes)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "?")
