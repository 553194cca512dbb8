"""Tenacity: its decorators, calls and loops, sync and async, and what is built on them."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

from flowmark_otel import names
from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.naming import calling_function, function_name
from flowmark_otel.adapters.recording import Call, Try, failed_inside, is_suppressed_now

_CALL: Final = "_flowmark_call"
"""Attribute of a state of Tenacity: the call that it is of, None if it is not recorded."""

NAME: Final = "_flowmark_name"
"""Attribute of a retrying object, set by who builds on Tenacity: what its loops are called."""

_TRY: Final = "_flowmark_try"
_LIBRARIES: Final = ("tenacity", "stamina")
_UNASKED: Final[Any] = object()


class TenacityInstrumentor(Adapter):
    """Records each try of ``@retry``, ``Retrying``, ``AsyncRetrying`` and their loops.

    A try begins when the function is called, or the ``with`` block of a loop is entered, and ends
    where that is left. One that returned what the policy rejects has failed, with the error code
    ``result_rejected``; in a loop results are not seen. The limit is ``stop_after_attempt``'s.
    """

    requirement = "tenacity >= 8.2.0"
    module = "tenacity"

    def patch(self, patches: Patches) -> None:
        """Wrap the step of the loop, the ends of a try, and the block of a loop."""
        import tenacity  # noqa: PLC0415 - only where it is there

        steps = _Steps(tenacity)
        for kind in (tenacity.BaseRetrying, tenacity.AsyncRetrying):
            patches.wrap(kind, "iter", steps.iter)
        patches.wrap(tenacity.RetryCallState, "set_result", _set_result)
        patches.wrap(tenacity.RetryCallState, "set_exception", _set_exception)
        patches.wrap(tenacity.AttemptManager, "__enter__", steps.enter)
        patches.wrap(tenacity.AttemptManager, "__aenter__", steps.aenter)


class _Steps:
    """What knows Tenacity's classes: which step was taken, and what the policy allows."""

    def __init__(self, tenacity: Any) -> None:
        self._attempt = tenacity.DoAttempt
        self._sleep = tenacity.DoSleep
        self._given_up = tenacity.RetryError
        self._by_number = tenacity.stop_after_attempt
        self._by_any = tenacity.stop_any

    def iter(self, original: Any) -> Any:
        """The step of a loop, and what it means for the try before and the next one."""
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def async_step(retrying: Any, retry_state: Any) -> Any:
                try:
                    do = await original(retrying, retry_state)
                except BaseException as error:
                    self._settle(retrying, retry_state, isinstance(error, self._given_up))
                    raise
                self._follow(retrying, retry_state, do)
                return do

            return async_step

        attempt, begin, settle = self._attempt, self._begin, self._settle

        @functools.wraps(original)
        def step(retrying: Any, retry_state: Any) -> Any:
            try:
                do = original(retrying, retry_state)
            except BaseException as error:
                settle(retrying, retry_state, isinstance(error, self._given_up))
                raise
            if type(do) is not attempt:  # as in _follow, with fewer frames
                settle(retrying, retry_state, isinstance(do, self._sleep))
            elif retry_state.fn is not None:
                begin(retry_state)
            return do

        return step

    def enter(self, original: Any) -> Any:
        """The start of a block."""

        @functools.wraps(original)
        def entered(manager: Any) -> Any:
            found = original(manager)
            self._begin(manager.retry_state)
            return found

        return entered

    def aenter(self, original: Any) -> Any:
        """The start of an asynchronous block."""

        @functools.wraps(original)
        async def entered(manager: Any) -> Any:
            found = await original(manager)
            self._begin(manager.retry_state)
            return found

        return entered

    def _follow(self, retrying: Any, state: Any, do: object) -> None:
        if isinstance(do, self._attempt):
            if state.fn is not None:
                self._begin(state)
        elif getattr(state, _TRY, None) is not None:
            self._settle(retrying, state, isinstance(do, self._sleep))

    def _begin(self, state: Any) -> None:
        try:
            call: Call | None = getattr(state, _CALL, _UNASKED)
            if call is _UNASKED:
                call = self._call(state)
                setattr(state, _CALL, call)
            if call is not None:
                setattr(state, _TRY, call.start(state.attempt_number))
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)

    def _settle(self, retrying: Any, state: Any, retried: bool) -> None:  # noqa: FBT001
        """End a try that returned, now that the policy has judged what it returned."""
        pending: Try | None = getattr(state, _TRY, None)
        if pending is None:
            return
        setattr(state, _TRY, None)
        try:
            # Without a callback whoever gives up raises, and what is returned is a success.
            rejected = retried or (
                retrying.retry_error_callback is not None and _was_rejected(retrying, state)
            )
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
            rejected = False
        pending.end(code=names.ERROR_RESULT_REJECTED if rejected else None)

    def _call(self, state: Any) -> Call | None:
        if is_suppressed_now():
            return None
        function = state.fn
        name = _loop_name(state) if function is None else function_name(function)
        stop = state.retry_object.stop
        usual = type(stop) is self._by_number
        return Call(name, stop.max_attempt_number if usual else self._limit(stop))

    def _limit(self, stop: object) -> int | None:
        """The attempts that a policy allows; other conditions may end it before."""
        if isinstance(stop, self._by_number):
            found: int = stop.max_attempt_number
            return found
        if isinstance(stop, self._by_any):
            limits = [each for each in map(self._limit, stop.stops) if type(each) is int]
            return min(limits) if limits else None
        return None


def _loop_name(state: Any) -> str:
    retrying = state.retry_object
    named = getattr(retrying, NAME, None)
    if named is None:  # releases since 9.1 know a name
        named = getattr(retrying, "_name", None)
    return named if isinstance(named, str) else calling_function(*_LIBRARIES)


def _was_rejected(retrying: Any, state: Any) -> bool:
    """Whether the policy wanted another try when it was asked last."""
    judged = getattr(retrying, "iter_state", None)
    if judged is not None:
        return bool(judged.retry_run_result or judged.is_explicit_retry)
    since: float | None = retrying.statistics.get("delay_since_first_attempt")
    return bool(since) and since == state.seconds_since_start  # written when it wants one


def _set_result(original: Any) -> Any:
    @functools.wraps(original)
    def set_result(state: Any, val: Any) -> Any:
        started: Try | None = getattr(state, _TRY, None)
        if started is not None:
            if state.fn is None:  # the block of a loop: nothing may come after it
                setattr(state, _TRY, None)
                started.end()
            else:
                started.leave()
        return original(state, val)

    return set_result


def _set_exception(original: Any) -> Any:
    @functools.wraps(original)
    def set_exception(state: Any, exc_info: Any) -> Any:
        started: Try | None = getattr(state, _TRY, None)
        if started is not None:
            setattr(state, _TRY, None)
            started.end(exc_info[1])
        return original(state, exc_info)

    return set_exception
