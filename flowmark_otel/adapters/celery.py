"""Celery: each execution of a task is a try of its message, in whichever worker it happens."""

from __future__ import annotations

import functools
import sys
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span

from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.joining import Joined
from flowmark_otel.adapters.recording import Call, Try, failed_inside, is_suppressed_now
from flowmark_otel.validate import clean_default

_TRY: Final = "_flowmark_try"
"""Attribute of the request of an execution, which Celery makes anew for each."""


class CeleryInstrumentor(Adapter):
    """Records each execution: the group is the task id, the number one more than its retries.

    The run is that of the root task's id. A try failed where its function raised, ``Retry`` too:
    then the error is what ``Retry`` was raised for. Where Celery's instrumentation has a span for
    the execution, that span is the try. The limit is ``max_retries`` and one, where the task says
    it, or tries again by itself.
    """

    requirement = "celery >= 5.3.0"
    module = "celery.app.trace"

    _listening: tuple[tuple[Any, Any], ...] = ()
    """What listens, by signal; owned by instrument and uninstrument."""

    def patch(self, patches: Patches) -> None:
        """Listen whenever a task is made ready to be executed, so after all others."""
        from celery import signals  # noqa: PLC0415 - only where it is there
        from celery.app import trace as tracing  # noqa: PLC0415 - as above

        self._listening = (
            (signals.task_prerun, _begun),
            (signals.task_retry, _retried),
            (signals.task_failure, _failed),
            (signals.task_postrun, _ended),
        )
        # A worker that is loaded by now has taken the function from there.
        for module in (tracing, sys.modules.get("celery.worker.consumer.consumer")):
            if module is not None:
                patches.wrap(module, "build_tracer", self._build_tracer)

    def _build_tracer(self, original: Any) -> Any:
        @functools.wraps(original)
        def build_tracer(*args: Any, **kwargs: Any) -> Any:
            try:
                self._listen_last()
            except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
                failed_inside(error)
            return original(*args, **kwargs)

        return build_tracer

    def _listen_last(self) -> None:
        """Connect after an instrumentation, whose span has to be there when a try begins."""
        for signal, receiver in self._listening:
            if signal.receivers and signal.receivers[-1][1] is receiver:
                continue
            signal.disconnect(receiver)
            signal.connect(receiver, weak=False)

    def _uninstrument(self, **kwargs: object) -> None:
        super()._uninstrument(**kwargs)
        for signal, receiver in self._listening:
            signal.disconnect(receiver)
        self._listening = ()


def _begun(*_: Any, task: Any, **__: Any) -> None:
    try:
        if is_suppressed_now():
            return
        request = task.request
        call = Call(
            clean_default(str(task.name))[0],
            _limit(task),
            request.id,
            request.root_id or request.id,
        )
        span = trace.get_current_span()
        number = request.retries + 1
        started = Joined(call, span, number) if _is_of_execution(span, task) else call.start(number)
        setattr(request, _TRY, started)
    except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
        failed_inside(error)


def _retried(*_: Any, request: Any, reason: Any, **__: Any) -> None:
    _end(request, _cause(reason))


def _failed(*_: Any, sender: Any, exception: Any, **__: Any) -> None:
    # What is handed on may be a copy that can be pickled, of another type.
    _end(getattr(sender, "request", None), sys.exc_info()[1] or exception)


def _ended(*_: Any, task: Any, retval: Any, state: Any, **__: Any) -> None:
    if state in {"SUCCESS", "IGNORED"}:
        _end(task.request, None)
    else:  # rejected; or nothing caught what was raised, and it is passing
        _end(task.request, retval if state == "REJECTED" else sys.exc_info()[1])


def _end(request: Any, error: BaseException | None) -> None:
    """End the try of an execution, unless its end is known by now."""
    try:
        started: Try | Joined | None = getattr(request, _TRY, None)
        if started is not None:
            setattr(request, _TRY, None)
            started.end(error)
    except Exception as raised:  # noqa: BLE001 - nothing of ours reaches the application
        failed_inside(raised)


def _is_of_execution(span: Span, task: Any) -> bool:
    """Whether it is the span that Celery's instrumentation has for an execution."""
    return span.is_recording() and getattr(span, "name", None) == f"run/{task.name}"


def _cause(reason: Any) -> BaseException | None:
    """What a ``Retry`` was raised for; itself, if for nothing."""
    from celery.utils.serialization import UnpickleableExceptionWrapper  # noqa: PLC0415 - as above

    for each in (reason.exc, reason.__cause__, reason.__context__):
        if isinstance(each, BaseException) and not isinstance(each, UnpickleableExceptionWrapper):
            return each
    return reason if isinstance(reason, BaseException) else None


def _limit(task: Any) -> int | None:
    """The executions that a task allows in total; Celery's default says nothing of a task."""
    most = None
    if getattr(task, "autoretry_for", ()):
        most = (getattr(task, "retry_kwargs", None) or {}).get("max_retries", task.max_retries)
    elif any("max_retries" in vars(each) for each in _own_classes(task)):
        most = task.max_retries
    return most + 1 if type(most) is int else None


def _own_classes(task: Any) -> list[type]:
    """The classes of a task that are the application's."""
    return [
        each for each in type(task).__mro__ if not (each.__module__ or "").startswith("celery.app.")
    ]
