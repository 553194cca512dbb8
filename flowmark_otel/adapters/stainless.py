"""What OpenAI's and Anthropic's SDKs have in common: one generator wrote the loop of both."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from importlib import import_module
from types import FrameType
from typing import Any, ClassVar, Final

from opentelemetry import context as otel

from flowmark_otel import names
from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.looping import Loop, loop_under, running
from flowmark_otel.adapters.naming import request_name
from flowmark_otel.adapters.recording import failed_inside

_PLAIN: Final = re.compile(r"v\d+|[a-z]+(?:_[a-z]+)*")
"""Parts of a path that are words of an API, never an id."""

_OPTIONS: Final = 1
"""Where ``request`` takes what it asks for, after ``self``."""


class StainlessAdapter(Adapter):
    """Records each try of a request that its client may try again.

    A try lasts from when its request is built until the answer's head is there, or, where it is
    not streamed, all of the answer. It failed by the status of the answer, as error code, or by
    the error of the HTTP client. The limit is ``max_retries`` and one.
    """

    package: ClassVar[str]
    """The SDK's own package, in which it calls its methods ``resources``."""

    def patch(self, patches: Patches) -> None:
        """Wrap the loop, the step that builds a try's request, and the wait after a failure."""
        base = import_module(f"{self.package}._base_client")
        steps = _Steps(self, self.package, import_module(self.package))
        patches.wrap(base.BaseClient, "_build_request", steps.build)
        for client in (base.SyncAPIClient, base.AsyncAPIClient):
            patches.wrap(client, "request", steps.request)
            patches.wrap(client, "_sleep_for_retry", steps.sleep)


class _Steps:
    """The steps of one SDK's loop; ``sdk`` is its package."""

    def __init__(self, adapter: Adapter, package: str, sdk: Any) -> None:
        self._adapter = adapter
        self._package = package
        self._resources = f"{package}.resources."
        self._by_status = sdk.APIStatusError
        self._by_connection = sdk.APIConnectionError
        self._key = otel.create_key(f"flowmark-{package}-loop")

    def request(self, original: Any) -> Any:
        """All tries of one request."""
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def async_request(client: Any, *args: Any, **kwargs: Any) -> Any:
                loop = self._begun(client, args, kwargs)
                if loop is None:
                    return await original(client, *args, **kwargs)
                with running(loop, self._key, self._failed):
                    return await original(client, *args, **kwargs)

            return async_request

        @functools.wraps(original)
        def request(client: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._begun(client, args, kwargs)
            if loop is None:
                return original(client, *args, **kwargs)
            with running(loop, self._key, self._failed):
                return original(client, *args, **kwargs)

        return request

    def build(self, original: Any) -> Any:
        """What a try begins with, where the SDK says how many came before it."""

        @functools.wraps(original)
        def build(client: Any, *args: Any, **kwargs: Any) -> Any:
            loop = loop_under(self._key)
            if loop is not None and not loop.is_open:
                taken = kwargs.get("retries_taken")
                loop.start(taken + 1 if isinstance(taken, int) else None)
            return original(client, *args, **kwargs)

        return build

    def sleep(self, original: Any) -> Any:
        """What the SDK does between two tries: the first of them has failed."""
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def async_sleep(client: Any, *args: Any, **kwargs: Any) -> Any:
                self._retried(kwargs.get("response"), sys.exc_info()[1])
                return await original(client, *args, **kwargs)

            return async_sleep

        @functools.wraps(original)
        def sleep(client: Any, *args: Any, **kwargs: Any) -> Any:
            self._retried(kwargs.get("response"), sys.exc_info()[1])
            return original(client, *args, **kwargs)

        return sleep

    def _begun(self, client: Any, args: Any, kwargs: Any) -> Loop | None:
        """The loop of a request, which is on from now; None where there is nothing to do."""
        try:
            options = args[_OPTIONS] if len(args) > _OPTIONS else kwargs["options"]
            retries = options.get_max_retries(client.max_retries)
            allowed = self._adapter.is_on and isinstance(retries, int) and retries > 0
            if not allowed and loop_under(self._key) is None:
                return None
            loop = Loop()
            if allowed:
                loop.plan(self._name(options), retries + 1)
            loop.enter(self._key)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
            return None
        return loop

    def _retried(self, response: Any, error: BaseException | None) -> None:
        try:
            loop = loop_under(self._key)
            if loop is None:
                return
            if response is not None:
                loop.end(code=str(response.status_code))
            elif error is not None:
                self._failed(loop, error)
            else:
                loop.end(code=names.ERROR_RESULT_REJECTED)
        except Exception as raised:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(raised)

    def _failed(self, loop: Loop, error: BaseException) -> None:
        """A try failed by what the SDK's error was made of: so all tries name it alike."""
        try:
            if isinstance(error, self._by_status):
                loop.end(code=str(error.status_code))
            elif isinstance(error, self._by_connection) and error.__cause__ is not None:
                loop.end(error.__cause__)
            else:
                loop.end(error)
        except Exception as raised:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(raised)

    def _name(self, options: Any) -> str:
        """The method of the SDK that asks, which newer releases of Anthropic's name themselves.

        Where there is none, the HTTP method, and the path as far as it is made of plain words.
        """
        given = getattr(options, "span_name", None)
        if isinstance(given, str) and given:
            return given
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - no other way costs so little
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith(self._resources):
                return f"{self._package}.{_method(module[len(self._resources) :], frame)}"
            if not module.startswith((f"{self._package}.", __name__)):
                break
            frame = frame.f_back
        return f"{self._package} {request_name(options.method, _words(options.url))}"


def _method(module: str, frame: FrameType) -> str:
    """``chat.completions.create`` of a module ``chat.completions.completions``."""
    parts = module.split(".")
    if parts[-2:-1] == parts[-1:]:
        del parts[-1]
    return ".".join((*parts, frame.f_code.co_name))


def _words(path: str) -> str:
    """The beginning of a path that names no one thing."""
    words: list[str] = []
    for part in path.partition("?")[0].strip("/").split("/"):
        if not _PLAIN.fullmatch(part):
            break
        words.append(part)
    return "/" + "/".join(words) if words else ""
