"""``file``: telemetry as OTLP/JSON, a request a line; dead letters as section 9 has them (C6)."""

from __future__ import annotations

import asyncio
import errno
from typing import Final

from flowmark_otel import names
from flowmark_otel.collector.config.options import FileExporter
from flowmark_otel.collector.element import ElementError, Outcome
from flowmark_otel.collector.exporters.appending import Appender
from flowmark_otel.collector.exporters.forms import lines_of
from flowmark_otel.collector.payload import Payload
from flowmark_otel.errors import ConfigurationError

_PASSING: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE))
"""What may be over by itself; anything else is for somebody to mend."""


class FileElement:
    """One file. What it took is synced; what it did not take left nothing behind."""

    def __init__(self, options: FileExporter) -> None:
        self._path = options.path
        self._file = Appender(options.path)

    async def start(self) -> None:
        """Open the file. Raises ConfigurationError where it cannot be written."""
        try:
            await asyncio.to_thread(self._file.open)
        except OSError as error:
            if error.errno not in _PASSING:
                msg = f"path: {self._path} cannot be written: {error.strerror}"
                raise ConfigurationError([msg]) from error

    async def take(self, payload: Payload, seconds: float) -> Outcome:  # noqa: ARG002 - the disk's
        """Append it. Raises ElementError where the disk does not take it."""
        try:
            await asyncio.to_thread(self._append, payload)
        except OSError as error:
            msg = f"{self._path}: {error.strerror}"
            paused = error.errno not in _PASSING
            raise ElementError(names.REASON_UNAVAILABLE, msg, paused=paused) from error
        return Outcome()

    async def close(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._file.close)

    def _append(self, payload: Payload) -> None:
        self._file.append(lines_of(payload))
