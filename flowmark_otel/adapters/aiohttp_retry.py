"""aiohttp-retry: requests of its ``RetryClient``."""

from __future__ import annotations

import functools
from collections.abc import Container
from typing import Any, Final

from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.looping import Loop
from flowmark_otel.adapters.naming import request_name
from flowmark_otel.adapters.recording import failed_inside

_LOOP: Final = "_flowmark_loop"
"""Attribute of a request of the library: the loop that it is in."""

_SERVER_ERRORS: Final = 500


class AiohttpRetryInstrumentor(Adapter):
    """Records each try of a request whose options allow more than one.

    A try lasts until the answer's head is there. It failed by an exception, or by an answer that
    the options reject, with the status as error code. The limit is ``attempts``.
    """

    requirement = "aiohttp-retry >= 2.9.0"
    module = "aiohttp_retry"

    def patch(self, patches: Patches) -> None:
        """Wrap the loop, and the step that judges an answer."""
        from aiohttp_retry import client  # noqa: PLC0415 - only where it is there

        request = client._RequestContext  # noqa: SLF001 - nothing public sees a try
        patches.wrap(request, "_do_request", self._loop)
        patches.wrap(request, "_is_skip_retry", _judge)

    def _loop(self, original: Any) -> Any:
        """All tries of one request."""

        @functools.wraps(original)
        async def do_request(request: Any) -> Any:
            loop = self._begun(request)
            if loop is None:
                return await original(request)
            send = request._request_func  # noqa: SLF001 - as above
            request._request_func = loop.trying(send)  # noqa: SLF001 - as above
            setattr(request, _LOOP, loop)
            try:
                response = await original(request)
            except BaseException as error:
                loop.end(error)
                raise
            finally:
                request._request_func = send  # noqa: SLF001 - as above
                setattr(request, _LOOP, None)
            loop.returned(request._retry_options)  # noqa: SLF001 - as above
            return response

        return do_request

    def _begun(self, request: Any) -> _Request | None:
        try:
            attempts = request._retry_options.attempts  # noqa: SLF001 - as above
            if not self.is_on or attempts <= 1:
                return None
            loop = _Request()
            loop.plan(_name(request), attempts if type(attempts) is int else None)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
            return None
        return loop


class _Request(Loop):
    """A request; ``answer`` is that of the try that waits for its end."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        super().__init__()
        self.answer: Any = None

    def trying(self, send: Any) -> Any:
        """What sends, as a try."""

        @functools.wraps(send)
        async def sent(*args: Any, **kwargs: Any) -> Any:
            if self.is_open:  # its answer was raised as an error, which is tried again
                self.rejected(self.answer)
            self.start()
            try:
                self.answer = await send(*args, **kwargs)
            except BaseException as error:
                self.end(error)
                raise
            self.wait()
            return self.answer

        return sent

    def rejected(self, response: Any) -> None:
        """The try that is open has failed, by the status of its answer."""
        try:
            self.end(code=str(response.status))
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)

    def returned(self, options: Any) -> None:
        """The last answer is handed over: also where it is one that was tried again before."""
        try:
            if _rejects(options, self.answer):
                self.rejected(self.answer)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
        self.end()


def _judge(original: Any) -> Any:
    """The step that says whether an answer is not tried again."""

    @functools.wraps(original)
    async def is_skip_retry(request: Any, *args: Any, **kwargs: Any) -> Any:
        loop = getattr(request, _LOOP, None)
        try:
            found = await original(request, *args, **kwargs)
        except BaseException as error:
            if loop is not None:
                loop.end(error)
            raise
        if loop is not None and not found:
            loop.rejected(loop.answer)
        return found

    return is_skip_retry


def _rejects(options: Any, response: Any) -> bool:
    """Whether the status alone makes the library try again while tries are left."""
    if response.method.upper() not in options.methods:
        return False
    if response.status >= _SERVER_ERRORS and options.retry_all_server_errors:
        return True
    statuses = options.statuses
    return isinstance(statuses, Container) and response.status in statuses


def _name(request: Any) -> str:
    """Method and host of what is asked first."""
    from yarl import URL  # noqa: PLC0415 - aiohttp brings it

    asked = request._params_list[0]  # noqa: SLF001 - as above
    host = URL(asked.url).host
    if host is None:  # the session has the rest of the address
        session = getattr(request._request_func, "__self__", None)  # noqa: SLF001 - as above
        host = getattr(getattr(session, "_base_url", None), "host", None)
    return request_name(asked.method, host or "")
