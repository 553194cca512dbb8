"""The log of a server: one JSON object a line on standard error.

``time``, ``level``, ``event`` and the event's own fields; what a library logs is event ``library``
with its text in ``message``. Everything is ASCII, so no value ends a line or moves a terminal, and
nothing that looks like a secret is ever written.

A line is written for what an operator has to know or do, once when it begins and once when it ends;
never for a request: those are counted.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from datetime import datetime, timezone
from typing import Final, TextIO

from flowmark_otel.validate.secrets import redact_text

LEVELS: Final = ("debug", "info", "warning", "error")

_FIELDS: Final = "flowmark_fields"
_KEY: Final = re.compile(r"fmk_[A-Za-z0-9]+_[A-Za-z0-9]+")
_BEARER: Final = re.compile(r"(?i)(bearer(?: |%20)+)\S+")
_LONGEST: Final = 2_000
_FRAMES: Final = 6
_OURS: Final = "flowmark_otel"
_NOISY: Final = {
    # Peers that speak no HTTP are counted by nobody and must not be able to fill a disk.
    "uvicorn": logging.ERROR,
    "asyncio": logging.ERROR,
    # What it says of itself each time it is loaded.
    "alembic": logging.WARNING,
}


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send all that this process logs to standard error, from ``level`` on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, least in _NOISY.items():
        quiet = logging.NOTSET if level == "debug" else least
        logging.getLogger(name).setLevel(quiet)


def say(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Log one event; ``fields`` are what JSON can hold, or are written as text."""
    logger.log(level, event, extra={_FIELDS: fields})


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, object] = {
            "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
            "level": record.levelname.lower(),
        }
        fields = getattr(record, _FIELDS, None)
        if isinstance(fields, dict):
            line["event"] = record.getMessage()
            line |= {name: _kept(value) for name, value in fields.items()}
        else:
            ours = record.name.partition(".")[0] == _OURS
            line["event"] = "fault" if ours else "library"
            line["logger"] = record.name
            line["message"] = _kept(record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            line |= _raised(record.exc_info[1])
        line["process"] = record.process
        return json.dumps(line, ensure_ascii=True, allow_nan=False)


def _raised(error: BaseException) -> dict[str, object]:
    """Kind and place of an exception; not its text, since drivers quote what they were given."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return {
        "exception": type(error).__name__,
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


def _kept(value: object) -> object:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124  NaN
    if isinstance(value, (list, tuple)):
        return [_kept(each) for each in value]
    text = redact_text(_BEARER.sub(r"\1[redacted]", _KEY.sub("fmk_[redacted]", str(value))))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
