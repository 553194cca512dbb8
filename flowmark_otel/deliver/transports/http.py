"""OTLP over HTTP, protobuf or JSON, by ``requests`` (D1)."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from flowmark_otel import names
from flowmark_otel.config.client import JSON, ClientOptions
from flowmark_otel.config.parsers import is_loopback
from flowmark_otel.deliver.transport import Answer, EventStatus, NoAnswer
from flowmark_otel.deliver.transports.headers import sent_headers
from flowmark_otel.deliver.transports.timed import Deadline, TimedAdapter
from flowmark_otel.errors import Unparsable
from flowmark_otel.wire.receipt import dumps, load_object

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
_CHUNK: Final = 64 * 1024
_LOGS: Final = "/v1/logs"
_STATUS: Final = "/v1/flowmark/status"
_CAPABILITIES: Final = "/v1/flowmark/capabilities"
_JSON_TYPE: Final = "application/json"


_inherited: Final[list[requests.Session]] = []
"""Sessions of a parent, kept from being collected: their finalizers wait for locks of their own."""


class _Session(requests.Session):
    """Leaves redirects alone: requests would read their bodies even where it does not follow."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002 - the base's
        """Nowhere."""
        return


class HttpTransport:
    """One session to one endpoint; no redirect is followed, for it would carry the key along.

    A proxy of the environment is used unless the endpoint is on this machine.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.encoding = "json" if options.protocol == JSON else "protobuf"
        self._options = options
        self._endpoint = options.endpoint.rstrip("/")
        self._deadline = Deadline()
        self._session = self._new_session()

    def _new_session(self) -> requests.Session:
        options = self._options
        session = _Session()
        adapter = TimedAdapter(self._deadline)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        session.trust_env = not _on_this_machine(self._endpoint)
        session.auth = _keep_headers
        session.headers.clear()
        session.headers.update(sent_headers(options))
        session.headers["accept-encoding"] = "identity"
        if options.certificate is not None:
            session.verify = str(options.certificate)
        if options.client_certificate is not None and options.client_key is not None:
            session.cert = (str(options.client_certificate), str(options.client_key))
        return session

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """The answer to one export; raises NoAnswer."""
        headers = {"content-type": content_type}
        if self._options.compression == "gzip":
            body = gzip.compress(body, 1)
            headers["content-encoding"] = "gzip"
        return self._post(_LOGS, body, headers, timeout)

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:
        """What became of these events; raises NoAnswer."""
        body = dumps({"eventIds": list(event_ids)})
        answer = self._post(_STATUS, body, {"content-type": _JSON_TYPE}, timeout)
        try:
            events = load_object(answer.body).get("events")
        except Unparsable:
            events = None
        if answer.status != requests.codes.ok or not isinstance(events, list):
            msg = f"the status endpoint answered {answer.status}"
            raise NoAnswer(msg)
        return [_status(each) for each in events if isinstance(each, dict)]

    def capabilities(self, timeout: float) -> tuple[tuple[str, ...], str]:
        """What the other side acknowledges, and its id; raises NoAnswer."""
        answer = self._call("GET", _CAPABILITIES, None, {}, timeout)
        try:
            found = load_object(answer.body)
        except Unparsable:
            found = {}
        listed, backend_id = found.get("capabilities"), found.get("backendId")
        if answer.status != requests.codes.ok or not isinstance(listed, list):
            msg = f"the capabilities endpoint answered {answer.status}"
            raise NoAnswer(msg)
        capabilities = tuple(each for each in listed if isinstance(each, str))
        return capabilities, backend_id if isinstance(backend_id, str) else ""

    def after_fork(self) -> None:
        """Close the child's copy of the connection, which leaves the parent's as it is.

        No lock of the session is taken: a thread of the parent may have held it at the fork.
        """
        _abandon(self._session)
        self._deadline = Deadline()
        self._session = self._new_session()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        return self._call("POST", path, body, headers, timeout)

    def _call(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout: float
    ) -> Answer:
        self._deadline.within(timeout)
        try:
            with self._session.request(
                method,
                self._endpoint + path,
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                stream=True,
            ) as response:
                return _answer(response)
        except (requests.Timeout, TimeoutError) as error:
            raise _timed_out(timeout) from error
        except (requests.RequestException, HTTPError, OSError) as error:
            cause = _cause(error)
            if isinstance(cause, TimeoutError):
                raise _timed_out(timeout) from error
            msg = f"no answer from {self._endpoint}: {_words(cause)}"
            raise NoAnswer(msg) from error


def _abandon(session: requests.Session) -> None:
    """Close the idle sockets of a session, and leave nothing in it that its end would wait for."""
    _inherited.append(session)
    for adapter in session.adapters.values():
        manager = getattr(adapter, "poolmanager", None)
        pools = getattr(getattr(manager, "pools", None), "_container", {})
        for pool in list(pools.values()):
            with suppress(Exception):  # what is inside of urllib3 may change
                for connection in list(pool.pool.queue):
                    if connection is not None and connection.sock is not None:
                        connection.sock.close()
                type(pool.pool).__init__(pool.pool, pool.pool.maxsize)  # empty, with new locks


def _answer(response: requests.Response) -> Answer:
    """Read the whole body, as it came; a cut one is no answer."""
    body = bytearray()
    while chunk := response.raw.read(_CHUNK, decode_content=False):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            msg = f"the answer is longer than {MAX_ANSWER_BYTES} bytes"
            raise NoAnswer(msg)
    length = response.headers.get("content-length", "")
    if length.isdigit() and int(length) != len(body):
        msg = f"the answer was cut after {len(body)} of {length} bytes"
        raise NoAnswer(msg)
    headers: dict[str, str | bytes] = {
        name.lower(): value for name, value in response.headers.items()
    }
    return Answer(response.status_code, bytes(body), headers)


def _timed_out(timeout: float) -> NoAnswer:
    return NoAnswer(f"no whole answer within {timeout:.1f} s", names.REASON_TIMEOUT)


def _cause(error: BaseException) -> BaseException:
    """The innermost cause, which names what happened; the outer ones only wrap it."""
    seen = error
    while True:
        reason: object = getattr(seen, "reason", None)
        inner = reason if isinstance(reason, BaseException) else seen.__cause__ or seen.__context__
        if inner is None or inner is seen:
            return seen
        seen = inner


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"


def _status(found: Mapping[str, object]) -> EventStatus:
    values = (found.get(key) for key in ("eventId", "state", "digest", "code"))
    return EventStatus(*(value if isinstance(value, str) else "" for value in values))


def _on_this_machine(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    return is_loopback(f"[{host}]:0" if ":" in host else f"{host or 'unknown'}:0")


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Instead of what a .netrc would put in place of the key."""
    return request
