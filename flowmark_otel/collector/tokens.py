"""Who may send to a receiver: whoever has one of its tokens (``bearertokenauth``)."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from flowmark_otel import names
from flowmark_otel.collector.config.options import BearerTokenAuth
from flowmark_otel.errors import Unauthenticated, Unavailable
from flowmark_otel.model import Principal

SENDER: Final = Principal(0, "collector", names.KEY_INGEST)
"""For whom every sender stands: projects are told apart by the backend."""


def anyone(_authorization: str | None) -> Principal:
    """No token is asked for."""
    return SENDER


class Tokens:
    """The tokens of one extension; a file is read again when it changed."""

    def __init__(self, options: BearerTokenAuth) -> None:
        self._path: Path | None = options.filename
        given = options.tokens if options.token is None else (options.token,)
        self._tokens = [each.encode() for each in given]
        self._read: tuple[int, int] | None = None

    def authenticate(self, authorization: str | None) -> Principal:
        """The sender. Raises Unauthenticated; Unavailable where the file cannot be read."""
        scheme, _, token = (authorization or "").strip().partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        # All are compared, so that the time says nothing of which was near.
        same = [hmac.compare_digest(given, each) for each in self._current()]
        if scheme.lower() != "bearer" or not given or not any(same):
            msg = "send the header: authorization: Bearer <token>, with a token of this collector"
            raise Unauthenticated(msg)
        return SENDER

    def _current(self) -> list[bytes]:
        if self._path is None:
            return self._tokens
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._read:
                lines = self._path.read_bytes().splitlines()
                self._tokens = [line.strip() for line in lines if line.strip()]
                self._read = stamp
        except OSError as error:
            msg = "the file of tokens cannot be read"
            raise Unavailable(msg) from error
        return self._tokens
