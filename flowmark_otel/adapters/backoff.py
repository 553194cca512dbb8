"""backoff: functions decorated with ``on_exception`` and ``on_predicate``, sync and async."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context as otel

from flowmark_otel import names
from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.naming import function_name
from flowmark_otel.adapters.recording import Call, Try, failed_inside, is_suppressed_now

_LOOP_KEY: Final = otel.create_key("flowmark-backoff-loop")
_HANDLERS: Final = ("on_success", "on_backoff", "on_giveup")


class BackoffInstrumentor(Adapter):
    """Records each try of functions that are decorated while it is on.

    A try that returned what the predicate of ``on_predicate`` takes for a failure has failed, with
    the error code ``result_rejected``. The limit is ``max_tries``, also where a function gives it.
    """

    requirement = "backoff >= 2.0.0"
    module = "backoff"

    def patch(self, patches: Patches) -> None:
        """Wrap what makes a loop around a function."""
        from backoff import _async, _sync  # noqa: PLC0415 - only where it is there

        for module in (_sync, _async):
            for name in ("retry_exception", "retry_predicate"):
                patches.wrap(module, name, functools.partial(_making, self))


class _Loop:
    """One call of a decorated function; ``tried`` is the try that waits for its verdict."""

    __slots__ = ("_call", "_number", "tried")

    def __init__(self, target: object, max_tries: object) -> None:
        self._call: Call | None = None
        self._number = 0
        self.tried: Try | None = None
        try:
            if not is_suppressed_now():
                self._call = Call(function_name(target))
                self.allow(max_tries)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)

    def allow(self, max_tries: object) -> None:
        """What the policy allows, where it is a number."""
        if self._call is not None and type(max_tries) is int:
            self._call.allow(max_tries)

    def start(self) -> None:
        """Start the next try."""
        self._number += 1
        self.tried = None if self._call is None else self._call.start(self._number)

    def end(self, error: BaseException | None = None, *, rejected: bool = False) -> None:
        """End the try that was started."""
        tried, self.tried = self.tried, None
        if tried is not None:
            tried.end(error, code=names.ERROR_RESULT_REJECTED if rejected else None)


def _current_loop() -> _Loop | None:
    found = otel.get_value(_LOOP_KEY)
    return found if isinstance(found, _Loop) else None


def _making(adapter: Adapter, original: Any) -> Any:
    """What makes a loop around a function, with the tries of each call recorded."""

    @functools.wraps(original)
    def making(target: Any, wait_gen: Any, judge: Any, **options: Any) -> Any:
        judged = original.__name__ == "retry_predicate"
        trying = _trying_async if inspect.iscoroutinefunction(target) else _trying
        if judged:
            judge = _judging(judge)

        def put_back(details: dict[str, Any]) -> None:
            details["target"] = target  # handlers get the application's function, not ours

        given = {name: [put_back, *options[name]] for name in _HANDLERS}
        if callable(options.get("max_tries")):
            given["max_tries"] = _asking(options["max_tries"])
        retry = original(trying(target, judged=judged), wait_gen, judge, **{**options, **given})
        begin = functools.partial(_calling, adapter, target, options.get("max_tries"))
        return _around_async(retry, begin) if trying is _trying_async else _around(retry, begin)

    return making


@contextmanager
def _calling(adapter: Adapter, target: object, max_tries: object) -> Iterator[None]:
    """The context of one call: its loop is found there by the tries."""
    on = adapter.is_instrumented_by_opentelemetry
    before = otel.get_current()
    inside = otel.set_value(_LOOP_KEY, _Loop(target, max_tries) if on else None)
    otel.attach(inside)
    try:
        yield
    finally:  # no token is kept: a coroutine may be closed in another task
        if otel.get_current() is inside:
            otel.attach(before)


def _around(retry: Any, begin: Any) -> Any:
    @functools.wraps(retry)
    def called(*args: Any, **kwargs: Any) -> Any:
        with begin():
            return retry(*args, **kwargs)

    return called


def _around_async(retry: Any, begin: Any) -> Any:
    @functools.wraps(retry)
    async def called(*args: Any, **kwargs: Any) -> Any:
        with begin():
            return await retry(*args, **kwargs)

    return called


class _Trying:
    """The block of one call of the target, where it is in a loop that is recorded.

    A try that returned has completed, unless the predicate has still to say so (``judged``).
    """

    __slots__ = ("_judged", "_loop")

    def __init__(self, *, judged: bool) -> None:
        self._judged = judged
        self._loop = _current_loop()

    def __enter__(self) -> None:
        if self._loop is not None:
            self._loop.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        loop = self._loop
        if loop is None:
            return
        if error is not None or not self._judged:
            loop.end(error)
        elif loop.tried is not None:
            loop.tried.leave()


def _trying(target: Any, *, judged: bool) -> Any:
    @functools.wraps(target)
    def tried(*args: Any, **kwargs: Any) -> Any:
        with _Trying(judged=judged):
            return target(*args, **kwargs)

    return tried


def _trying_async(target: Any, *, judged: bool) -> Any:
    @functools.wraps(target)
    async def tried(*args: Any, **kwargs: Any) -> Any:
        with _Trying(judged=judged):
            return await target(*args, **kwargs)

    return tried


def _asking(max_tries: Any) -> Any:
    """The application's function for the limit, which backoff asks at each call."""

    @functools.wraps(max_tries, updated=())
    def asked(*args: Any, **kwargs: Any) -> Any:
        found = max_tries(*args, **kwargs)
        loop = _current_loop()
        if loop is not None:
            loop.allow(found)
        return found

    return asked


def _judging(predicate: Any) -> Any:
    """The application's predicate, which says how the try ended."""

    @functools.wraps(predicate, updated=())
    def judged(found: Any) -> Any:
        loop = _current_loop()
        rejected = False
        try:
            verdict = predicate(found)
            rejected = bool(verdict)
        finally:
            if loop is not None:
                loop.end(rejected=rejected)
        return verdict

    return judged
