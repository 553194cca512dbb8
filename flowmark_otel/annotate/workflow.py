"""A run of a workflow: a handle and a context manager, and where operations are made."""

from __future__ import annotations

import inspect
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from opentelemetry import context as otel, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span
from typing_extensions import TypeVar, TypeVarTuple, Unpack

from flowmark_otel import names
from flowmark_otel.annotate.context import enter, identity_of, leave, with_identity
from flowmark_otel.annotate.hook import client, tell
from flowmark_otel.annotate.links import started
from flowmark_otel.annotate.operation import Operation, Told, is_failure
from flowmark_otel.annotate.options import (
    IdempotencyRule,
    MapError,
    OperationDefinition,
    OperationOptions,
    end_attributes,
    identity_fields,
    operation_fields,
    plain,
    run_fields,
    shown,
    type_name,
)
from flowmark_otel.annotate.recording import Ending, Place, Recording
from flowmark_otel.annotate.wrapping import run
from flowmark_otel.model import Attempt, RunRef, Value
from flowmark_otel.validate import clean_default

if TYPE_CHECKING:
    from typing_extensions import Never, Self

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
ResultT = TypeVar("ResultT", bound=Mapping[str, object], default=Mapping[str, Value])


class Workflow(Generic[ResultT]):
    """One run: ends with ``done`` or ``fail``, or with its block; otherwise it stays open.

    Made by ``workflow`` or by ``WorkflowDefinition.start``; its start is sent when it is made. It
    can be handed to other threads and tasks, operations are made from it wherever it is known.
    """

    __slots__ = ("_identity", "_inside", "_recording", "_ref")

    def __init__(
        self,
        name: str,
        run_id: str | None,
        retry_of: RunRef | None,
        legacy: tuple[str | None, str | None],
        unknown: Mapping[str, object],
    ) -> None:
        found = client()
        own_id: object = _new_run_id() if run_id is None else run_id
        self._identity = identity_fields(name, own_id)
        self._ref = RunRef(_shown(name), _shown(own_id))
        fields = run_fields(self._identity, retry_of, *legacy)
        fields.unknown(unknown)
        inside = otel.get_current()
        if not self._identity.faults:
            inside = with_identity(inside, *self._ref_pair(), send=found.sends_baggage)
        links = started.link(retry_of) if isinstance(retry_of, RunRef) else []
        place = Place(inside, found.clock.now_ns(), links)
        # Owned here: the span of the run, which operations elsewhere take as their parent.
        self._recording = Recording(found, names.RECORD_RUN, name, fields, place)
        self._inside = inside
        started.remember(self._ref, self._recording.span.get_span_context())

    @property
    def run_id(self) -> str:
        """The id of this run."""
        return self._ref.run_id

    @property
    def ref(self) -> RunRef:
        """What another run names this one by in ``retry_of`` (A12)."""
        return self._ref

    @property
    def span(self) -> Span:
        """The OpenTelemetry span, for attributes of the application's own."""
        return self._recording.span

    def operation(  # noqa: PLR0913 - the options of the contract
        self,
        name: str | OperationDefinition,
        *,
        attempt: Attempt | None = None,
        limit: int | None = None,
        deadline: int | None = None,
        timeout: int | None = None,
        system: str | None = None,
        series: str | None = None,
        idempotency_key: str | IdempotencyRule | None = None,
        map_error: MapError | None = None,
        **unknown: Never,
    ) -> Operation:
        """One operation of this run: handle, context manager or decorator (A2).

        ``attempt`` makes it one try of a group, without it is an occurrence of its own (A4).
        ``limit``: attempts allowed in total. ``deadline``: epoch milliseconds. ``timeout``:
        milliseconds from where its block or function begins, where it is stopped if it can be (B5).
        ``idempotency_key``: the key, or a rule of workflow, run id, operation name
        and group id, so that every attempt has the same (B3). ``map_error``: names the failure
        that an exception is. A wrong option is reported, and the operation not recorded.
        """
        options: OperationOptions = {
            "attempt": attempt,
            "limit": limit,
            "deadline": deadline,
            "timeout": timeout,
            "system": system,
            "series": series,
            "idempotency_key": idempotency_key,
            "map_error": map_error,
        }
        return self._operation(name, options, unknown)

    def call(
        self,
        name: str | OperationDefinition,
        function: Callable[[Unpack[Ts]], R],
        /,
        *args: Unpack[Ts],
        **options: Unpack[OperationOptions],
    ) -> R:
        """The result of ``function``, run as an operation; always run, whatever the options.

        Completed when it returns, failed when an exception leaves it, which passes through.
        """
        return run(self._operation(name, options, {}), partial(function, *args))

    async def acall(
        self,
        name: str | OperationDefinition,
        function: Callable[[Unpack[Ts]], Awaitable[R]],
        /,
        *args: Unpack[Ts],
        **options: Unpack[OperationOptions],
    ) -> R:
        """The result of a coroutine function, awaited as an operation; as ``call`` (A2).

        A cancelled one has failed, with the cancellation as its error. At its ``timeout`` it is
        cancelled, and AttemptTimeoutError raised (B5).
        """
        async with self._operation(name, options, {}):
            later: Any = function(*args)
            # Whoever hands over a plain function still gets its result.
            result: R = await later if inspect.isawaitable(later) else later
            return result

    def done(self, *, outcome: str | None = None, result: ResultT | None = None) -> None:
        """End the run: completed.

        ``outcome``: at most 64 characters, such as ``complete``. ``result``: at most 64 values,
        text, bools and numbers by key.
        """
        attributes = end_attributes((None, None), outcome, result)
        self._recording.end(Ending(failed=False, attributes=attributes))

    complete = done

    def fail(
        self,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        outcome: str | None = None,
        result: ResultT | None = None,
    ) -> None:
        """End the run: failed, with what it did get done (``outcome="partial"``)."""
        attributes = end_attributes((code, retryable), outcome, result)
        self._recording.end(Ending(failed=True, attributes=attributes))

    def __enter__(self) -> Self:
        enter(self, self.span, self._inside)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave(self)
        if self._recording.ended:
            return
        failed = is_failure(error)
        self._recording.end(Ending(failed, {}, error if failed else None))

    def __repr__(self) -> str:
        state = "ended" if self._recording.ended else "open"
        return f"<run {self._ref.run_id!r} of {self._ref.workflow!r}, {state}>"

    def _operation(
        self,
        name: str | OperationDefinition,
        options: OperationOptions,
        unknown: Mapping[str, object],
    ) -> Operation:
        given: Mapping[str, object] = options
        own: object = name
        fault = ""
        if isinstance(name, OperationDefinition):
            own = name.name
            said = {key: value for key, value in given.items() if value is not None}
            given, fault = _shared(name.options)
            given = {**given, **said}
        key, callback = plain(self._idempotency_key(own, given)), given.get("map_error")
        fields = operation_fields(self._identity, own, given, key)
        fields.unknown(unknown)
        fields.unknown([each for each in given if each not in OperationOptions.__annotations__])
        if fault:
            fields.faults.append(fault)
        if callback is not None and not callable(callback):
            fields.faults.append(f"map_error is a {type(callback).__name__}; set a function")
        map_error: Any = callback
        told = Told(own, fields, key if isinstance(key, str) else None, map_error)
        again = partial(self._operation, name, options, unknown)
        return Operation(told, self._inner(), self._recording.trace_id, again)

    def _idempotency_key(self, name: object, options: Mapping[str, object]) -> object:
        """The key itself, or what the rule makes of it."""
        rule = options.get("idempotency_key")
        if not callable(rule):
            return rule
        attempt = options.get("attempt")
        group = attempt.group_id if isinstance(attempt, Attempt) else ""
        try:
            key: object = rule(*self._ref_pair(), name, group)
        except Exception as raised:  # noqa: BLE001 - a callback of the application
            message = f"the idempotency rule raised {type_name(type(raised))}; there is no key"
            tell(client(), names.DIAGNOSTIC_CALLBACK_FAILED, message)
            return None
        return key

    def _inner(self) -> Context:
        """The context of an operation: inside this run, the innermost span of it as parent."""
        current = otel.get_current()
        if self._identity.faults or tuple(identity_of(current)) == self._ref_pair():
            return current
        inside = trace.set_span_in_context(self.span, current)
        return with_identity(inside, *self._ref_pair(), send=client().sends_baggage)

    def _ref_pair(self) -> tuple[str, str]:
        return self._ref.workflow, self._ref.run_id


def workflow(
    name: str,
    *,
    run_id: str | None = None,
    retry_of: RunRef | None = None,
    parent_run_id: str | None = None,
    correlation_id: str | None = None,
    **unknown: Never,
) -> Workflow[Mapping[str, Value]]:
    """Start a run of a workflow, which is recorded at once.

    Without ``run_id`` it gets a new UUID (A13); with one that was used before, that run is
    continued. ``retry_of`` names the run that this one retries (A12). ``parent_run_id`` and
    ``correlation_id`` are legacy (A19).
    """
    return Workflow(name, run_id, retry_of, (parent_run_id, correlation_id), unknown)


def _shared(options: object) -> tuple[Mapping[str, object], str]:
    """The options of a definition, and what is wrong with them as a whole."""
    try:
        if isinstance(options, Mapping):
            return dict(options), ""
    except Exception:  # noqa: BLE001, S110 - a mapping of the application's; said below
        pass
    return {}, f"options is a {type(options).__name__}; set a dict of options"


def _shown(value: object) -> str:
    """A name or id that can be shown and referred to, also where it broke its rule."""
    return clean_default(shown(value))[0]


def _new_run_id() -> str:
    """A new UUID (A13), from the generator that spans' ids come from.

    ``uuid4`` asks the system each time, which gives up the interpreter lock: a thread that starts
    many runs then keeps the others waiting. The generator starts anew in a forked child.
    """
    return str(uuid.UUID(int=random.getrandbits(128), version=4))
