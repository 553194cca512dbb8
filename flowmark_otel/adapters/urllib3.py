"""urllib3: requests under a ``Retry`` policy, and so those of requests' ``HTTPAdapter``."""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from opentelemetry import context as otel

from flowmark_otel import names
from flowmark_otel.adapters.instrumentor import Adapter, Patches
from flowmark_otel.adapters.looping import Loop, loop_under
from flowmark_otel.adapters.naming import request_name
from flowmark_otel.adapters.recording import failed_inside

_KEY: Final = otel.create_key("flowmark-urllib3-loop")
_RETRIES: Final = 4
"""Where ``HTTPConnectionPool.urlopen`` takes its policy, after ``self``."""


class URLLib3Instrumentor(Adapter):
    """Records each try of a request that its policy allows to be tried more than once.

    A try lasts from its connection until the answer's head is there, redirects that are followed
    included. It failed by the error that urllib3 counts against the policy, or by an answer that
    the policy tries again, with the status as error code. The limit is ``total`` and one.
    """

    requirement = "urllib3 >= 2.0.0"
    module = "urllib3"

    def patch(self, patches: Patches) -> None:
        """Wrap both loops of urllib3, and the step in which a policy counts."""
        import urllib3  # noqa: PLC0415 - only where it is there

        tries = _Tries(self, urllib3.Retry)
        patches.wrap(urllib3.Retry, "increment", tries.increment)
        patches.wrap(urllib3.HTTPConnectionPool, "urlopen", tries.pool_urlopen)
        patches.wrap(urllib3.PoolManager, "urlopen", tries.manager_urlopen)


class _Request(Loop):
    """A request. ``policy``: what it began with. ``managed``: a manager follows its redirects."""

    __slots__ = ("managed", "policy")

    def __init__(self, *, managed: bool = False) -> None:
        super().__init__()
        self.managed = managed
        self.policy: Any = None


class _Call(NamedTuple):
    """A call of ``urlopen``: the request that it belongs to, and whether it is its first."""

    request: _Request
    is_first: bool

    def end(self, error: BaseException | None = None) -> None:
        """What is still open ends with the call, and the request with its first."""
        self.request.end(error)
        if self.is_first:
            self.request.leave(_KEY)


class _Tries:
    """What knows urllib3's class of policies."""

    def __init__(self, adapter: Adapter, policies: Any) -> None:
        self._adapter = adapter
        self._policies = policies
        self._is_retry = policies.is_retry

    def increment(self, original: Any) -> Any:
        """The step in which a policy counts what went wrong, before it waits: a try has failed."""

        @functools.wraps(original)
        def counted(policy: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if kwargs.get("_pool") is not None:  # urllib3's own loop, nobody else's
                    _count(kwargs.get("error"), kwargs.get("response"))
            except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
                failed_inside(error)
            return original(policy, *args, **kwargs)

        return counted

    def manager_urlopen(self, original: Any) -> Any:
        """A request of a manager, which follows redirects, to other hosts too, by itself."""

        @functools.wraps(original)
        def urlopen(manager: Any, *args: Any, **kwargs: Any) -> Any:
            call = self._begun_by_manager(kwargs.get("retries"))
            if call is None:
                return original(manager, *args, **kwargs)
            try:
                response = original(manager, *args, **kwargs)
            except BaseException as error:
                call.end(error)
                raise
            call.end()
            return response

        return urlopen

    def pool_urlopen(self, original: Any) -> Any:
        """One hop: the library calls it again for each try and each redirect."""

        @functools.wraps(original)
        def urlopen(pool: Any, *args: Any, **kwargs: Any) -> Any:
            call = self._begun(pool, args, kwargs)
            if call is None:
                return original(pool, *args, **kwargs)
            try:
                response = original(pool, *args, **kwargs)
            except BaseException as error:
                call.end(error)
                raise
            if not self._is_followed(call.request, response, args, kwargs):
                call.end()
            return response

        return urlopen

    def _begun_by_manager(self, policy: Any) -> _Call | None:
        try:
            if not self._adapter.is_on or self._goes_on(loop_under(_KEY), policy):
                return None
            request = _Request(managed=True)
            request.enter(_KEY)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
            return None
        return _Call(request, is_first=True)

    def _begun(self, pool: Any, args: Any, kwargs: Any) -> _Call | None:
        """The call with its try started; None if nothing is to be done."""
        call = None
        try:
            policy = _argument(args, kwargs, _RETRIES, "retries")
            found = loop_under(_KEY)
            if isinstance(found, _Request) and (found.is_new or self._goes_on(found, policy)):
                call = _Call(found, is_first=False)
            if policy is None:
                policy = pool.retries
            if call is None:
                if not self._adapter.is_on:
                    return None
                if found is None and not self._allows_more(policy):
                    return None
                call = _Call(_Request(), is_first=True)
                call.request.enter(_KEY)
            self._start(call.request, policy, pool, args, kwargs)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
        return call

    def _goes_on(self, found: Loop | None, policy: Any) -> bool:
        """Whether a call is no request of its own: its policy has counted what was before it."""
        return found is not None and isinstance(policy, self._policies) and bool(policy.history)

    def _allows_more(self, policy: Any) -> bool:
        total = policy.total if isinstance(policy, self._policies) else policy
        return total is None or total > 0

    def _start(self, request: _Request, policy: Any, pool: Any, args: Any, kwargs: Any) -> None:
        if request.is_new:
            request.policy = policy
            if self._allows_more(policy):
                total = policy.total if isinstance(policy, self._policies) else policy
                limit = total + 1 if type(total) is int else None
                request.plan(_name(pool, args, kwargs), limit)
            else:
                request.ignore()
        elif request.is_open and policy.history[-1].redirect_location is None:
            # A policy of the application's own kind has counted without saying so.
            _failed(request, policy.history[-1].error, policy.history[-1].status)
        if not request.is_open:
            request.start()

    def _is_followed(self, request: _Request, response: Any, args: Any, kwargs: Any) -> bool:
        """Whether the try goes on after this answer; one that its policy rejects ends it."""
        try:
            if not request.is_open:
                return False
            if self._rejects(request.policy, response, _argument(args, kwargs, 0, "method")):
                _failed(request, None, response.status)
            return request.managed and bool(response.get_redirect_location())
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the application
            failed_inside(error)
            return False

    def _rejects(self, policy: Any, response: Any, method: str) -> bool:
        """Whether the last try's answer is one that was tried again while tries were left."""
        if not isinstance(policy, self._policies):
            policy = self._policies.DEFAULT
        if type(policy).is_retry is not self._is_retry:
            return False  # the application's own rule; it is not asked more often than without us
        has_retry_after = bool(response.headers.get("Retry-After"))
        return bool(policy.is_retry(method, response.status, has_retry_after))


def _count(error: Exception | None, response: Any) -> None:
    request = loop_under(_KEY)
    if request is None or (error is None and response and response.get_redirect_location()):
        return
    _failed(request, error, getattr(response, "status", None))


def _failed(request: Loop, error: Exception | None, status: object) -> None:
    code = names.ERROR_RESULT_REJECTED if status is None else str(status)
    request.end(error, code=None if error is not None else code)


def _argument(args: Any, kwargs: Any, position: int, name: str) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)


def _name(pool: Any, args: Any, kwargs: Any) -> str:
    """Method and host; behind a proxy the host that is asked for."""
    url = _argument(args, kwargs, 1, "url")
    host = pool.host if url.startswith("/") else urlsplit(url).hostname
    return request_name(_argument(args, kwargs, 0, "method"), host or pool.host)
