"""Requests over HTTP on the loop, by ``aiohttp``: connections that are kept, at most so many."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from flowmark_otel import names
from flowmark_otel.collector.config.options import Remote
from flowmark_otel.config.parsers import is_loopback
from flowmark_otel.deliver.judge import CONTENT_TYPES
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.deliver.transports.headers import USER_AGENT

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
MAX_CONNECTIONS: Final = 64
_CHUNK: Final = 64 * 1024
_INLINE: Final = 16 * 1024  # more is compressed in a thread: it would hold up the loop
_KEPT_SECONDS: Final = 4.0
"""Shorter than servers keep an idle connection (uvicorn: 5 s), so that none ends as it is used."""


class HttpSender:
    """Posts to one endpoint; no redirect is followed, for it would carry the key along.

    A proxy of the environment is used unless the endpoint is on this machine. Owns its connections.
    """

    json = True

    def __init__(self, options: Remote, *, gzip: bool = False) -> None:
        self._gzip = gzip
        self._endpoint = options.url.rstrip("/")
        self._headers = {"user-agent": USER_AGENT, "accept-encoding": "identity"}
        self._headers.update((name.lower(), value) for name, value in options.headers.items())
        self._tls = options.tls if options.secure else None
        self._session: aiohttp.ClientSession | None = None

    def start(self) -> None:
        """Make the session; connections are made as they are needed. Needs a running loop."""
        context: ssl.SSLContext | bool = True
        if self._tls is not None:
            context = ssl.create_default_context(
                cafile=None if self._tls.ca_file is None else str(self._tls.ca_file)
            )
            if self._tls.cert_file is not None:
                context.load_cert_chain(self._tls.cert_file, self._tls.key_file)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=MAX_CONNECTIONS, keepalive_timeout=_KEPT_SECONDS, ssl=context
            ),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=not _on_this_machine(self._endpoint),
        )

    async def export(self, signal: str, encoding: str, body: bytes, seconds: float) -> Answer:
        """The answer to one request, any status. Raises NoAnswer if no whole one came in time."""
        headers = {"content-type": CONTENT_TYPES[encoding]}
        if self._gzip:
            headers["content-encoding"] = "gzip"
            body = await _compressed(body)
        assert self._session is not None, "start comes before export"  # noqa: S101 - its caller's part
        try:
            async with self._session.post(
                f"{self._endpoint}/v1/{signal}",
                data=body,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as response:
                found = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, await _body(response), found)
        except asyncio.TimeoutError as error:
            msg = f"no whole answer within {seconds:.1f} s"
            raise NoAnswer(msg, names.REASON_TIMEOUT) from error
        except (aiohttp.ClientError, OSError) as error:
            msg = f"no answer from {self._endpoint}: {_words(error)}"
            raise NoAnswer(msg) from error

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


async def _compressed(body: bytes) -> bytes:
    if len(body) <= _INLINE:
        return gzip.compress(body, 1)
    return await asyncio.to_thread(gzip.compress, body, 1)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while chunk := await response.content.read(_CHUNK):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            response.close()
            msg = f"the answer is longer than {MAX_ANSWER_BYTES} bytes"
            raise NoAnswer(msg)
    return bytes(body)


def _words(error: Exception) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return f"{type(error).__name__}: {error}"


def _on_this_machine(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or "unknown"
    return is_loopback(f"[{host}]:0" if ":" in host else f"{host}:0")
