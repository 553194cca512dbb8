"""What an event is judged to be, by the contract's table (contract, section 4).

``best_judge`` is the backend's own judge where the ``server`` extra is installed. Without it the
same table stands here on the core alone; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from flowmark_otel import names
from flowmark_otel.fold import digest
from flowmark_otel.model import Envelope, Sender

_ENDS: Final = frozenset((names.OPERATION_COMPLETED, names.OPERATION_FAILED))
_RunId: TypeAlias = tuple[str, str]


class Ruling(NamedTuple):
    """``stored``, ``duplicate`` or ``conflict``, and what a conflict is with."""

    state: str
    message: str = ""


class Judge(Protocol):
    """Remembers what it accepted and judges one event after the other."""

    def judge(self, envelope: Envelope) -> Ruling:
        """The first row of the table that applies to an event."""
        ...


def best_judge() -> Judge:
    """The backend's judge if it can be imported, else the core's."""
    try:
        return BackendJudge()
    except ImportError:
        return CoreJudge()


class BackendJudge:
    """The judge that ``serve`` uses, on memory; raises ImportError without the server extra."""

    def __init__(self) -> None:
        from flowmark_otel.backend import batch, judge, known  # noqa: PLC0415 - server extra

        self._batch = batch
        self._judge = judge
        self._known = known.Known()

    def judge(self, envelope: Envelope) -> Ruling:
        """Judge a request of one event."""
        arrival = self._batch.Arrival(0, Sender(), envelope)
        prepared = self._batch.prepare(self._batch.Batch(1, names.ORIGIN_SERVER, [arrival]))
        verdict = self._judge.Judge(self._known, received_at=0).judge(prepared, [1])
        if verdict.rejections:
            return Ruling(verdict.rejections[0].code, verdict.rejections[0].message)
        return Ruling(names.STORED if verdict.stored else names.DUPLICATE)


class _Operation:
    """What was accepted of one operation id."""

    __slots__ = ("ended", "fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: Mapping[str, object] | None = None
        self.ended = False


class CoreJudge:
    """The table on the core alone."""

    def __init__(self) -> None:
        self._digests: dict[str, bytes] = {}
        self._operations: dict[tuple[_RunId, str], _Operation] = {}
        self._places: set[tuple[_RunId, str, object, object]] = set()

    def judge(self, envelope: Envelope) -> Ruling:
        """The first row that applies."""
        own = digest(envelope)
        first = self._digests.get(envelope.event_id)
        if first is not None:
            if first == own:
                return Ruling(names.DUPLICATE)
            message = "event id was accepted with another payload; the first stays"
            return Ruling(names.CONFLICT, message)
        if not envelope.part.startswith("run-"):
            fault = self._operation_fault(envelope)
            if fault:
                return Ruling(names.CONFLICT, fault)
        self._digests[envelope.event_id] = own
        return Ruling(names.STORED)

    def _operation_fault(self, envelope: Envelope) -> str:
        """Why an event contradicts its operation; empty, and it is remembered, if it does not."""
        # Any: validation let nothing but texts through where texts are wanted.
        given: dict[str, Any] = envelope.attributes
        run = (given[names.WORKFLOW_NAME], given[names.RUN_ID])
        name = given[names.OPERATION_NAME]
        key = (run, given[names.OPERATION_ID])
        found = self._operations.get(key)
        if found is not None and found.name != name:
            return f"operation id was accepted with the operation name {found.name!r}"
        if envelope.event == names.ATTEMPT_OBSERVED:
            self._operations.setdefault(key, _Operation(name))
            return ""
        fields: dict[str, object] = {
            each: given[each] for each in names.ATTEMPT_START_KEYS if each in given
        }
        place = (run, name, fields.get(names.ATTEMPT_GROUP_ID), fields.get(names.ATTEMPT_NUMBER))
        is_end = envelope.event in _ENDS
        if found is not None and found.fields is not None:
            if found.fields != fields:
                return "operation id was accepted with other attempt fields"
            if is_end and found.ended:
                return "operation was ended by another span"
        elif names.ATTEMPT_GROUP_ID in fields and place in self._places:
            return f"attempt {place[3]} of this group was accepted with another operation id"
        found = self._operations.setdefault(key, _Operation(name))
        found.fields = fields
        found.ended = found.ended or is_end
        if names.ATTEMPT_GROUP_ID in fields:
            self._places.add(place)
        return ""
