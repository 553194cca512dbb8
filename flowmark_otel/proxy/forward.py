"""From the proxy to the backend: a worker thread a request, of the visitor nothing but the body.

Both middlewares hand bodies over here, so neither an event loop nor a worker of a WSGI server
waits longer than ``timeout`` for the backend, whatever the backend does.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import urllib3
from urllib3.exceptions import HTTPError

from flowmark_otel.config import ProxyOptions
from flowmark_otel.errors import RequestError, TooLarge, Unavailable
from flowmark_otel.proxy.answer import Answer, refused
from flowmark_otel.proxy.decide import body_refused
from flowmark_otel.wire.inflate import gunzip

USER_AGENT: Final = "flowmark-otel-proxy"
MAX_ANSWER_BYTES: Final = 64 * 1024

_PASSED: Final = frozenset((200, 400, 409, 413, 429, 503))
"""Answers that are about the request; all others are about how this proxy is set up."""
_TOO_LARGE: Final = 413
_AGAIN: Final = "what was sent cannot be forwarded now"

_log = logging.getLogger("flowmark_otel.proxy")


class Forwarder:
    """Judges bodies and sends them to one backend.

    Owns the threads, at most ``max_in_flight``, and the connections; both are made when first
    needed, so it can be built before a server forks its workers.
    """

    def __init__(self, options: ProxyOptions) -> None:
        self._options = options
        self.seconds = options.timeout / 1000
        self._allowed = frozenset(options.workflows)
        self._free = threading.Semaphore(options.max_in_flight)
        self._threads = ThreadPoolExecutor(options.max_in_flight, "flowmark-proxy")
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=options.max_in_flight,
            retries=False,
            timeout=urllib3.Timeout(connect=self.seconds, read=self.seconds),
            ca_certs=None if options.certificate is None else str(options.certificate),
        )
        self._failing = False

    def submit(self, path: str, content_type: str, body: bytes, *, zipped: bool) -> Future[Answer]:
        """The answer to one body, some time; it raises nothing.

        Raises Unavailable where ``max_in_flight`` requests are being forwarded.
        """
        if not self._free.acquire(blocking=False):
            msg = "too many requests are being forwarded"
            raise Unavailable(msg)
        try:
            return self._threads.submit(self._handle, path, content_type, body, zipped)
        except BaseException:
            self._free.release()
            raise

    def late(self, content_type: str) -> Answer:
        """The answer where the backend did not give one in time."""
        self._failed(f"no answer within {self.seconds:g} seconds")
        return refused(Unavailable(_AGAIN), content_type)

    def close(self) -> None:
        """Wait for what is being forwarded, then end threads and connections."""
        self._threads.shutdown()
        self._pool.clear()

    def _handle(self, path: str, content_type: str, body: bytes, zipped: bool) -> Answer:  # noqa: FBT001 - as it comes from submit
        try:
            plain = gunzip(body, self._options.max_request_bytes) if zipped else body
            answer = body_refused(path, content_type, plain, self._allowed)
            # What was read is what is sent: the backend decompresses nothing that was not seen.
            return self._send(path, content_type, plain) if answer is None else answer
        except RequestError as error:
            return refused(error, content_type)
        except Exception as error:  # noqa: BLE001 - a worker's edge: whatever happens is answered
            # Its message is not logged: it may quote what a visitor sent.
            _log.error("a request could not be judged: %s", type(error).__name__)
            return refused(Unavailable(_AGAIN), content_type)
        finally:
            self._free.release()

    def _send(self, path: str, content_type: str, body: bytes) -> Answer:
        headers = {
            "accept-encoding": "identity",
            "content-type": content_type,
            "user-agent": USER_AGENT,
        }
        if self._options.api_key is not None:
            headers["authorization"] = f"Bearer {self._options.api_key}"
        try:
            response = self._pool.request(
                "POST",
                self._options.endpoint + path,
                body=body,
                headers=headers,
                preload_content=False,
                decode_content=False,
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            return self._no_answer(type(error).__name__, content_type)
        try:
            found = response.read(MAX_ANSWER_BYTES + 1)
        except (HTTPError, OSError) as error:
            response.close()
            return self._no_answer(type(error).__name__, content_type)
        if len(found) > MAX_ANSWER_BYTES:
            response.close()
            return self._no_answer("an answer that is no receipt", content_type)
        response.release_conn()
        return self._answer(response, found, content_type)

    def _answer(self, response: urllib3.BaseHTTPResponse, body: bytes, content_type: str) -> Answer:
        """The backend's answer as it is, if it is about the request and in its content type."""
        status = response.status
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if status == _TOO_LARGE and kind != content_type:  # of a hop in between
            return refused(TooLarge("the request is too large for a hop on its way"), content_type)
        if status not in _PASSED or kind != content_type:
            return self._no_answer(f"HTTP {status} of type {kind or 'none'}", content_type)
        if self._failing:
            self._failing = False
            _log.warning("the backend answers again")
        asked = response.headers.get("retry-after", "")
        known = asked.isascii() and asked.isdigit()
        return Answer(status, content_type, body, (("retry-after", asked),) if known else ())

    def _no_answer(self, found: str, content_type: str) -> Answer:
        self._failed(found)
        return refused(Unavailable(_AGAIN), content_type)

    def _failed(self, found: str) -> None:
        """Logged once until an answer comes; it names neither the key nor the request."""
        if not self._failing:
            self._failing = True
            _log.warning(
                "nothing can be forwarded to %s: %s; check endpoint and key",
                self._options.endpoint,
                found,
            )
