"""botocore, and boto3 on it: each send of an API call, in every retry mode."""

from __future__ import annotations

import functools
from typing import Any, Final

from flowmark_otel import names
from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.naming import joined_name
from flowmark_otel.adapters.recording import Call, Try, failed_inside, is_suppressed_now

_STATE: Final = "flowmark"
"""Key in the context of a request, botocore's own bag for it: the call, and the try that waits."""

_FAILED_FROM: Final = 300  # where botocore's callers get a ClientError
_LONGEST_CODE: Final = 128


class BotocoreInstrumentor(Adapter):
    """Records each send of an API call, with the invocation id and the number that botocore sends.

    A send failed where it raised, was answered by 300 or above, or was answered by what botocore
    sends again, as a wrong checksum; the error code is the service's. The limit is the retry
    mode's; legacy mode without a configured one says it after the first send.
    """

    requirement = "botocore >= 1.31.63"
    module = "botocore.endpoint"

    def patch(self, patches: Patches) -> None:
        """Wrap the send, and what decides about another."""
        from botocore.endpoint import Endpoint  # noqa: PLC0415 - only where it is there

        patches.wrap(Endpoint, "_get_response", _get_response)
        patches.wrap(Endpoint, "_needs_retry", _needs_retry)


class _State:
    """A call, and its try that was answered well and waits for botocore's verdict."""

    __slots__ = ("answered", "call")

    def __init__(self, operation: Any, retries: Any) -> None:
        name = joined_name(str(operation.service_model.service_id), operation.name)
        self.call = Call(name, group_id=retries["invocation-id"])
        self.answered: Try | None = None


def _get_response(original: Any) -> Any:
    @functools.wraps(original)
    def get_response(endpoint: Any, request: Any, operation_model: Any, context: Any) -> Any:
        state, started = _begin(operation_model, context)
        if started is None:
            return original(endpoint, request, operation_model, context)
        try:
            found = original(endpoint, request, operation_model, context)
        except BaseException as error:
            started.end(error)
            raise
        _answered(state, started, found)
        return found

    return get_response


def _needs_retry(original: Any) -> Any:
    @functools.wraps(original)
    def needs_retry(
        endpoint: Any, attempts: Any, operation_model: Any, request_dict: Any, *rest: Any, **kw: Any
    ) -> Any:
        state = request_dict["context"].get(_STATE)
        verdict: Any = False
        try:
            verdict = original(endpoint, attempts, operation_model, request_dict, *rest, **kw)
        finally:
            if isinstance(state, _State) and state.answered is not None:
                answered, state.answered = state.answered, None
                answered.end(code=names.ERROR_RESULT_REJECTED if verdict else None)
        return verdict

    return needs_retry


def _begin(operation: Any, context: Any) -> tuple[Any, Try | None]:
    """Start the try that botocore has counted."""
    try:
        retries = context["retries"]
        state = context.get(_STATE)
        if state is None:
            if is_suppressed_now():
                return None, None
            state = context[_STATE] = _State(operation, retries)
        state.call.allow(_limit(retries, context["client_config"].retries or {}))
        return state, state.call.start(retries["attempt"])
    except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
        failed_inside(error)
        return None, None


def _answered(state: _State, started: Try, found: Any) -> None:
    """End the try as it was answered; well, that is for ``_needs_retry`` to confirm."""
    try:
        answer, error = found
        if error is not None:
            started.end(error)
        elif answer[0].status_code >= _FAILED_FROM:
            started.end(code=_code(*answer))
        else:
            started.leave()
            state.answered = started
    except Exception as raised:  # noqa: BLE001 - nothing of ours reaches the application
        failed_inside(raised)
        started.end()


def _code(response: Any, parsed: Any) -> str:
    """The service's name for an error, which is no message; else the status."""
    code = (parsed.get("Error") or {}).get("Code")
    return (str(code) if code else str(response.status_code))[:_LONGEST_CODE]


def _limit(retries: Any, configured: Any) -> int | None:
    """The sends that the retry mode allows in total."""
    found = retries.get("max", configured.get("total_max_attempts"))
    if found is None and configured.get("mode") in {"standard", "adaptive"}:
        from botocore.retries.standard import DEFAULT_MAX_ATTEMPTS  # noqa: PLC0415 - as above

        found = DEFAULT_MAX_ATTEMPTS
    return found if type(found) is int else None
