"""Who may send to a receiver: whoever gives one of the tokens of its authenticator."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from flowmark_otel import names
from flowmark_otel.collector.config.options import BearerTokenAuth
from flowmark_otel.errors import ConfigurationError, Unauthenticated
from flowmark_otel.listen.logs import say
from flowmark_otel.model import Principal

REMEMBERED_SECONDS: Final = 2.0
"""So long after it changed a file of tokens may be taken for what it was."""
MAX_FILE_BYTES: Final = 1 << 20

SENDER: Final = Principal(0, "", names.KEY_INGEST)
"""Whoever may send: a collector has no projects, its exporters have the backend's key."""

_log = logging.getLogger(__name__)


def authenticator(
    options: BearerTokenAuth | None, now: Callable[[], float] = time.monotonic
) -> Callable[[str | None], Principal]:
    """From the ``authorization`` header to who sends; raises Unauthenticated. None: anybody may.

    Raises ConfigurationError where the file of tokens cannot be read.
    """
    if options is None:
        return lambda _authorization: SENDER
    return Tokens(options, now).check


class Tokens:
    """The tokens of one authenticator, as digests; those of a file follow the file."""

    def __init__(self, options: BearerTokenAuth, now: Callable[[], float]) -> None:
        self._now = now
        self._path = options.filename
        given = options.tokens if options.token is None else (options.token,)
        self._digests = [_digest(each) for each in given]
        self._looked_at = now()
        self._seen: tuple[int, int] | None = None
        if self._path is not None:
            try:
                self._read(self._path)
            except (OSError, ValueError) as error:
                msg = f"{self._path} cannot be read as tokens ({_reason(error)})"
                raise ConfigurationError([msg]) from error

    def check(self, authorization: str | None) -> Principal:
        """Who sends. Every token is compared, each in constant time."""
        self._refresh()
        scheme, _, token = (authorization or "").strip().partition(" ")
        digest = _digest(token.strip())
        known = [hmac.compare_digest(digest, each) for each in self._digests]
        if scheme.lower() != "bearer" or not any(known):
            msg = "send the header: authorization: Bearer, and a token that this collector knows"
            raise Unauthenticated(msg)
        return SENDER

    def _refresh(self) -> None:
        """Read the file again if it changed; while that fails the tokens stay what they were."""
        now = self._now()
        if self._path is None or now - self._looked_at < REMEMBERED_SECONDS:
            return
        self._looked_at = now
        try:
            self._read(self._path)
        except (OSError, ValueError) as error:
            say(
                _log,
                logging.ERROR,
                "tokens_not_read",
                file=str(self._path),
                message=_reason(error),
            )

    def _read(self, path: Path) -> None:
        """Raises OSError, or ValueError for a file that holds no token."""
        found = path.stat()
        seen = (found.st_mtime_ns, found.st_size)
        if seen == self._seen:
            return
        if found.st_size > MAX_FILE_BYTES:
            msg = f"is over {MAX_FILE_BYTES} bytes"
            raise ValueError(msg)
        lines = path.read_text("utf-8").splitlines()
        digests = [_digest(line.strip()) for line in lines if line.strip()]
        if not digests:
            msg = "holds no token; write one a line"
            raise ValueError(msg)
        self._digests, self._seen = digests, seen


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _reason(error: Exception) -> str:
    """Why, without what the file holds."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
