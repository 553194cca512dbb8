"""Dramatiq: each time a worker processes a message is a try of it, in whichever worker."""

from __future__ import annotations

import functools
import threading
from typing import Any

from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.recording import Call, Try, failed_inside, is_suppressed_now
from flowmark_otel.validate import clean_default


class DramatiqInstrumentor(Adapter):
    """Records each run of an actor by a worker: the group and the run are the message's id.

    The number is one more than the retries that the message carries. A run failed where the actor
    raised; of ``Retry`` the error is what it was raised for. The limit is ``max_retries`` and one,
    unless ``retry_when`` decides.
    """

    requirement = "dramatiq >= 1.14.0"
    module = "dramatiq"

    def patch(self, patches: Patches) -> None:
        """Wrap what a worker does with a message, and the call of an actor in it."""
        from dramatiq import worker  # noqa: PLC0415 - only where it is there
        from dramatiq.actor import Actor  # noqa: PLC0415 - as above

        kind = getattr(worker, "WorkerThread", None) or worker._WorkerThread  # noqa: SLF001 - its name before
        patches.wrap(kind, "process_message", _process_message)
        patches.wrap(Actor, "__call__", _call)


class _Processed(threading.local):
    """The message that this thread processes, until its actor is called; owned by the wrappers."""

    message: Any = None
    broker: Any = None


_processed = _Processed()


def _process_message(original: Any) -> Any:
    @functools.wraps(original)
    def process_message(worker: Any, message: Any) -> Any:
        _processed.message, _processed.broker = message, getattr(worker, "broker", None)
        try:
            return original(worker, message)
        finally:
            _processed.message = _processed.broker = None

    return process_message


def _call(original: Any) -> Any:
    @functools.wraps(original)
    def called(actor: Any, *args: Any, **kwargs: Any) -> Any:
        message = _processed.message
        if message is None:  # called as a function, or by the actor that is run
            return original(actor, *args, **kwargs)
        _processed.message = None
        started = _begin(actor, message)
        if started is None:
            return original(actor, *args, **kwargs)
        try:
            found = original(actor, *args, **kwargs)
        except BaseException as error:
            started.end(_cause(error))
            raise
        started.end()
        return found

    return called


def _begin(actor: Any, message: Any) -> Try | None:
    try:
        if is_suppressed_now():
            return None
        name = clean_default(str(message.actor_name))[0]
        found = message.message_id
        call = Call(name, _limit(actor, message, _processed.broker), found, found)
        return call.start(message.options.get("retries", 0) + 1)
    except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
        failed_inside(error)
        return None


def _cause(error: BaseException) -> BaseException:
    """What a ``Retry`` was raised for; itself, if for nothing."""
    from dramatiq.errors import Retry  # noqa: PLC0415 - only where it is there

    if isinstance(error, Retry):
        return error.__cause__ or error.__context__ or error
    return error


def _limit(actor: Any, message: Any, broker: Any) -> int | None:
    """The runs that are allowed in total, as the broker's middleware will decide."""
    from dramatiq.middleware import Retries  # noqa: PLC0415 - as above

    for each in getattr(broker, "middleware", ()):
        if isinstance(each, Retries):
            if actor.options.get("retry_when", each.retry_when) is not None:
                return None
            allowed = actor.options.get("max_retries", each.max_retries)
            most = message.options.get("max_retries", allowed)
            return most + 1 if type(most) is int else None
    return None
