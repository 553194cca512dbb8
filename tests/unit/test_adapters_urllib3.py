"""urllib3's own loop, and requests' by it, recorded as it happens; also with its oldest release."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import permutations
from typing import Any

import pytest
import requests
import tenacity
import urllib3
from opentelemetry import context as otel
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]  # unchecked
    BaseInstrumentor,
)
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.instrumentation.urllib3 import URLLib3Instrumentor as StockInstrumentor
from opentelemetry.instrumentation.utils import suppress_instrumentation
from requests.adapters import HTTPAdapter
from urllib3 import Retry
from urllib3.exceptions import MaxRetryError, NewConnectionError, ProtocolError

import flowmark_otel as flowmark
from flowmark_otel import names
from flowmark_otel.adapters import operation_name, urllib3 as ours
from flowmark_otel.adapters.tenacity import TenacityInstrumentor
from flowmark_otel.adapters.urllib3 import URLLib3Instrumentor
from tests.support.adapting import Adapted, adapted
from tests.support.replying import Reply, closed_port, replying

NAME = "GET 127.0.0.1"
THREE = ["1 failed (503)", "2 failed (503)", "3 completed"]
POLICY = Retry(4, status_forcelist=[503], backoff_factor=0)


@pytest.fixture
def recorded() -> Iterator[Adapted]:
    """The adapter on."""
    with adapted(URLLib3Instrumentor()) as found:
        yield found


def by_manager(url: str, policy: Any) -> int:
    """A request of a manager, as most are."""
    with urllib3.PoolManager() as manager:
        return manager.request("GET", f"{url}/a/1?token=secret", retries=policy).status


def by_pool(url: str, policy: Any) -> int:
    """A request of one pool, all by position."""
    with urllib3.connection_from_url(url) as pool:
        return pool.urlopen("GET", "/a/1?token=secret", None, None, policy).status


def by_requests(url: str, policy: Any) -> int:
    """A request of requests, with the policy where requests takes it."""
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=policy))
        return session.get(f"{url}/a/1?token=secret", timeout=5).status_code


WAYS = pytest.mark.parametrize("ask", [by_manager, by_pool, by_requests])


@WAYS
def test_answers_that_the_policy_tries_again(
    recorded: Adapted, ask: Callable[[str, Any], int]
) -> None:
    """E3: each try is an attempt; an answer of ``status_forcelist`` failed by its status."""
    with replying(503, 503) as server:
        assert ask(server.url, POLICY) == 200
        assert len(server.asked) == 3
    assert recorded.groups() == [(NAME, THREE)]
    assert {span.attributes[names.ATTEMPT_LIMIT] for span in recorded.spans} == {5}  # type: ignore[index]
    assert recorded.sent() == recorded.exported()


@WAYS
@pytest.mark.parametrize("returned", [True, False])
def test_the_last_answer(
    recorded: Adapted,
    ask: Callable[[str, Any], int],
    returned: bool,  # noqa: FBT001
) -> None:
    """E3: the last answer that the policy rejects failed too, raised or given to the caller."""
    policy = Retry(1, status_forcelist=[503], raise_on_status=not returned)
    with replying(503, 503) as server:
        if returned:
            assert ask(server.url, policy) == 503
        else:
            with pytest.raises((MaxRetryError, requests.exceptions.RetryError)):
                ask(server.url, policy)
    assert recorded.groups() == [(NAME, ["1 failed (503)", "2 failed (503)"])]


@WAYS
def test_answers_that_ask_for_another_try(
    recorded: Adapted, ask: Callable[[str, Any], int]
) -> None:
    """E3: ``Retry-After`` makes a failure of an answer, also of the last, which is handed over."""
    again = Reply(503, {"Retry-After": "0"})
    with replying(again, again) as server:
        assert ask(server.url, 1) == 503
    assert recorded.groups() == [(NAME, ["1 failed (503)", "2 failed (503)"])]


@WAYS
def test_an_answer_that_nobody_tries_again(
    recorded: Adapted, ask: Callable[[str, Any], int]
) -> None:
    """E3: the policy says what a failure is, not the adapter."""
    with replying(500) as server:
        assert ask(server.url, POLICY) == 500
    assert recorded.groups() == [(NAME, ["1 completed"])]


@WAYS
def test_connections_that_break(recorded: Adapted, ask: Callable[[str, Any], int]) -> None:
    """E3: a try failed by the error that urllib3 counts."""
    with replying(0) as server:
        assert ask(server.url, Retry(1)) == 200
    assert recorded.groups() == [
        (NAME, ["1 failed (urllib3.exceptions.ProtocolError)", "2 completed"])
    ]


@WAYS
def test_connections_that_are_refused(recorded: Adapted, ask: Callable[[str, Any], int]) -> None:
    """E3: tries without any answer; what is raised is urllib3's."""
    with pytest.raises((MaxRetryError, requests.ConnectionError)):
        ask(f"http://127.0.0.1:{closed_port()}", 2)
    refused = f"failed (urllib3.exceptions.{NewConnectionError.__name__})"
    assert recorded.groups() == [(NAME, [f"{number} {refused}" for number in (1, 2, 3)])]


@WAYS
@pytest.mark.parametrize("policy", [0, False, Retry(0, read=False), Retry(total=False)])
def test_a_policy_that_tries_once(
    recorded: Adapted, ask: Callable[[str, Any], int], policy: Any
) -> None:
    """E3: a request that nobody would try again is none of ours."""
    with replying() as server:
        assert ask(server.url, policy) == 200
    assert recorded.spans == ()


def test_limits_that_are_no_number(recorded: Adapted) -> None:
    """E3: without a total the policy does not say how many tries there may be."""
    with replying(503) as server:
        by_manager(server.url, Retry(None, status=2, status_forcelist=[503]))
    assert recorded.groups() == [(NAME, ["1 failed (503)", "2 completed"])]
    assert names.ATTEMPT_LIMIT not in (recorded.spans[0].attributes or {})


@pytest.mark.parametrize("direct", [True, False])
def test_redirects_are_of_the_same_try(recorded: Adapted, direct: bool) -> None:  # noqa: FBT001
    """E3: a redirect is no failure and no other try, before or after one that failed."""
    moved = Reply(302, {"Location": "/b"})
    with replying(moved, 503, moved) as server:
        ask = by_pool if direct else by_manager
        assert ask(server.url, POLICY) == 200
        assert len(server.asked) == 4
    assert recorded.groups() == [(NAME, ["1 failed (503)", "2 completed"])]


def test_redirects_to_another_server(recorded: Adapted) -> None:
    """E3: what is tried again there goes on with the same numbers."""
    with replying(503, 503) as other, replying(Reply(303, {"Location": other.url})) as server:
        assert by_manager(server.url, POLICY) == 200
    assert recorded.groups() == [(NAME, THREE)]


@WAYS
def test_redirects_that_are_not_followed(recorded: Adapted, ask: Callable[[str, Any], int]) -> None:
    """E3: too many redirects fail the try they are of; requests follows each by a new request."""
    moved = Reply(302, {"Location": "/b"})
    with replying(moved, moved) as server:
        if ask is by_requests:
            assert ask(server.url, 1) == 200
            assert recorded.groups() == [(NAME, ["1 completed"])] * 3
            return
        with pytest.raises(MaxRetryError):
            ask(server.url, Retry(3, redirect=1))
        assert recorded.groups() == [(NAME, ["1 failed (urllib3.exceptions.MaxRetryError)"])]
    with replying(moved) as server:
        assert ask(server.url, Retry(3, redirect=0, raise_on_redirect=False)) == 302
    assert recorded.groups()[1:] == [(NAME, ["1 completed"])]


def test_requests_behind_a_proxy_are_named_by_their_host(recorded: Adapted) -> None:
    """Issue 8: the operation is who is asked, not who passes it on; no path and no port."""
    with replying(503) as server, urllib3.ProxyManager(server.url) as manager:
        manager.request("GET", "http://crm.example:8080/a?b", retries=POLICY)
        with operation_name("fetch"):
            manager.request("BREW", "http://crm.example/a")
        manager.request("BREW", "http://crm.example/a")
    assert [name for name, _ in recorded.groups()] == [
        "GET crm.example",
        "fetch",
        "HTTP crm.example",
    ]


class _Silent(Retry):
    """A policy that counts in a way of its own."""

    def increment(self, *_: Any, **given: Any) -> Any:
        if self.total == 0:
            raise MaxRetryError(given["_pool"], "/")
        status = getattr(given.get("response"), "status", None)
        entry = urllib3.util.retry.RequestHistory("GET", "/", given.get("error"), status, None)
        return self.new(total=int(self.total or 0) - 1, history=(*self.history, entry))


def test_a_policy_that_counts_by_itself(recorded: Adapted) -> None:
    """E3: its history says what failed, when it is tried again."""
    with replying(503, 0) as server:
        assert by_manager(server.url, _Silent(3, status_forcelist=[503])) == 200
    assert recorded.groups() == [
        (NAME, ["1 failed (503)", "2 failed (urllib3.exceptions.ProtocolError)", "3 completed"])
    ]


def test_requests_inside_of_a_try(recorded: Adapted) -> None:
    """A4: a request that a policy or a body makes is a call of its own."""
    with replying(503) as server:

        class Asking(Retry):
            def sleep(self, response: Any = None) -> None:
                assert by_manager(server.url, POLICY) == 200
                assert by_manager(server.url, 0) == 200
                super().sleep(response)

        def body() -> Iterator[bytes]:
            with pytest.raises(MaxRetryError):
                by_manager(f"http://127.0.0.1:{closed_port()}", 0)
            assert by_manager(server.url, 1) == 200
            yield b"x"

        by_manager(server.url, Asking(2, status_forcelist=[503]))
        urllib3.PoolManager().request("POST", server.url, body=body(), retries=1)
    assert sorted(recorded.groups()) == [
        (NAME, ["1 completed"]),
        (NAME, ["1 completed"]),
        (NAME, ["1 failed (503)", "2 completed"]),
        ("POST 127.0.0.1", ["1 completed"]),
    ]


def _resent(span: Any, *_: Any) -> None:
    span.set_attribute("http.request.resend_count", 2)


STOCK: list[tuple[Callable[[], BaseInstrumentor], dict[str, Any]]] = [
    (RequestsInstrumentor, {"response_hook": _resent}),
    (StockInstrumentor, {"response_hook": _resent}),
]


@WAYS
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_beside_the_instrumentations_there_are(
    order: tuple[int, ...], ask: Callable[[str, Any], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 8, item 4: one try is counted once, whoever was there first and whatever is read."""
    monkeypatch.setenv("FLOWMARK_SIGNALS", "safe,azure_core,hatchet,gcp_pubsub")
    with replying(503, 503) as server, adapted() as found, ExitStack() as stack:
        own = URLLib3Instrumentor()
        for each in order:
            if each == 2:
                own.instrument()
                stack.callback(own.uninstrument)
            else:
                make, hooks = STOCK[each]
                stock = make()
                stock.instrument(tracer_provider=found.provider, **hooks)
                stack.callback(stock.uninstrument)
        before = otel.get_current()
        assert ask(server.url, POLICY) == 200
        assert otel.get_current() == before
    assert found.groups() == [(NAME, THREE)]
    assert found.sent() == found.exported()
    stock_spans = [span for span in found.spans if span.name == "GET"]
    assert len(stock_spans) == 1
    tries = [span for span in found.spans if span.name == NAME]
    assert len({span.parent.span_id if span.parent else 0 for span in tries}) == 1


def test_tenacity_around_requests() -> None:
    """Issue 8: two policies are two operations: each try of the outer one holds a group."""
    with (
        replying(503, 503, 503) as server,
        adapted(TenacityInstrumentor(), URLLib3Instrumentor()) as found,
    ):

        @tenacity.retry(stop=tenacity.stop_after_attempt(3))
        def fetch() -> int:
            return by_requests(server.url, Retry(1, status_forcelist=[503]))

        assert fetch() == 200
        assert len(server.asked) == 4
        [run] = found.backend.runs()
    assert found.groups()[0][1] == ["1 failed (requests.exceptions.RetryError)", "2 completed"]
    assert found.groups()[1:] == [
        (NAME, ["1 failed (503)", "2 failed (503)"]),
        (NAME, ["1 failed (503)", "2 completed"]),
    ]
    assert len({group.group_id for group in run.groups}) == 3


@WAYS
def test_runs(recorded: Adapted, ask: Callable[[str, Any], int]) -> None:
    """Issue 8: root tries share a run; else it is the workflow or the trace that is active."""
    with replying(503, 200, 503, 200, 503) as server:
        ask(server.url, POLICY)
        with recorded.tracer.start_as_current_span("request") as span:
            ask(server.url, POLICY)
        with flowmark.workflow("crm.sync", run_id="r1"):
            ask(server.url, POLICY)
    trace_id = format(span.get_span_context().trace_id, "032x")
    root, *others = [(run.workflow, run.run_id) for run in recorded.backend.runs()]
    assert root[0] == "tests"
    assert others == [("tests", trace_id), ("crm.sync", "r1")]
    assert [attempts for _, attempts in recorded.groups()] == [
        ["1 failed (503)", "2 completed"]
    ] * 3


@WAYS
def test_nothing_of_requests_and_answers(recorded: Adapted, ask: Callable[[str, Any], int]) -> None:
    """Issue 8: no path, no query, no header and no body is on the spans."""
    with replying(Reply(503, {"X-Private": "secret"}, b"secret")) as server:
        ask(server.url, POLICY)
    assert len(recorded.spans) == 2
    for span in recorded.spans:
        text = span.to_json()
        assert "secret" not in text
        assert "/a/1" not in text


@WAYS
def test_errors_warnings_and_logs_are_the_librarys(ask: Callable[[str, Any], int]) -> None:
    """Issue 8: what is raised, warned of and logged is the same as without the adapter."""

    class Told(logging.Handler):
        def __init__(self) -> None:
            super().__init__(logging.DEBUG)
            self.said: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.said.append(str(record.msg))

    def seen() -> list[object]:
        told = Told()
        logger = logging.getLogger("urllib3")
        logger.addHandler(told)
        level = logger.level
        logger.setLevel(logging.DEBUG)
        try:
            with (
                replying(503, 0, 503, 503) as server,
                warnings.catch_warnings(record=True) as warned,
            ):
                warnings.simplefilter("always")
                with pytest.raises((MaxRetryError, requests.exceptions.RetryError)) as raised:
                    ask(server.url, Retry(2, status_forcelist=[503]))
                reason = raised.value.args[0]
        finally:
            logger.removeHandler(told)
            logger.setLevel(level)
        cause = getattr(reason, "reason", None) or getattr(raised.value, "reason", None)
        return [
            type(raised.value),
            type(raised.value.__cause__),
            type(raised.value.__context__),
            str(cause),
            [str(each.message) for each in warned],
            told.said,
        ]

    without = seen()
    with adapted(URLLib3Instrumentor()) as found:
        assert seen() == without
        assert [attempts for _, attempts in found.groups()] == [
            ["1 failed (503)", "2 failed (urllib3.exceptions.ProtocolError)", "3 failed (503)"]
        ]


def test_what_is_suppressed_is_not_recorded(recorded: Adapted) -> None:
    """Issue 8: where instrumentation is suppressed, as exporters do, nothing is recorded."""
    with suppress_instrumentation(), replying(503) as server:
        by_manager(server.url, POLICY)
    assert recorded.spans == ()


def test_switched_off_it_is_gone() -> None:
    """Issue 8: uninstrument puts urllib3's own methods back."""
    owners = (urllib3.Retry, "increment"), (urllib3.HTTPConnectionPool, "urlopen")
    owners += ((urllib3.PoolManager, "urlopen"),)  # type: ignore[assignment]
    own = [vars(owner)[name] for owner, name in owners]
    with adapted(URLLib3Instrumentor()):
        assert all(
            vars(owner)[name] is not one for (owner, name), one in zip(owners, own, strict=True)
        )
    assert [vars(owner)[name] for owner, name in owners] == own


@WAYS
def test_a_fault_inside_reaches_nobody(
    ask: Callable[[str, Any], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 8: whatever raises in recording, answers and errors stand and nothing stays current."""

    def fail(*_: object, **__: object) -> None:
        msg = "broken"
        raise RuntimeError(msg)

    for broken in ("request_name", "_argument", "_failed", "_count"):
        with monkeypatch.context() as patched, adapted(URLLib3Instrumentor()) as found:
            patched.setattr(ours, broken, fail)
            before = otel.get_current()
            with replying(503) as server:
                assert ask(server.url, POLICY) == 200
            with pytest.raises((MaxRetryError, requests.ConnectionError, ProtocolError)):
                ask(f"http://127.0.0.1:{closed_port()}", 1)
            assert otel.get_current() == before
            found.backend.runs()  # flushed
            assert {each.code for each in found.diagnostics} == {names.DIAGNOSTIC_INTERNAL}
