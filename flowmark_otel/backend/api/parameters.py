"""Parameters of requests: read strictly; a refusal names parameter, what was found and the mend."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Final, get_args

from flowmark_otel import names
from flowmark_otel.backend.read import (
    DEFAULT_BUCKETS,
    DEFAULT_LIMIT,
    MAX_BUCKETS,
    MAX_LIMIT,
    BadParameter,
)
from flowmark_otel.model import MAX_NUMBER

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LATEST: Final = 2**63 - 1
_SHOWN: Final = 40  # characters of a wrong value that are said back
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}")
_TRUTH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: ``read`` gives its value or raises ValueError with the mend."""

    name: str
    help: str
    read: Callable[[str], object]
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    in_path: bool = False


def read_query(
    parameters: Iterable[Parameter], given: Iterable[tuple[str, str]]
) -> dict[str, object]:
    """The values of the parameters that are given; raises BadParameter for all others."""
    known = {one.name: one for one in parameters if not one.in_path}
    found: dict[str, object] = {}
    for name, value in given:
        parameter = known.get(name)
        if parameter is None:
            takes = ", ".join(sorted(known)) or "no parameters"
            msg = f"{_shown(name)}: is no parameter here; this request takes {takes}"
            raise BadParameter(msg)
        if name in found:
            msg = f"{name}: is given twice; give it once"
            raise BadParameter(msg)
        found[name] = read_one(parameter, value)
    return found


def read_one(parameter: Parameter, value: str) -> object:
    """The value of one parameter; raises BadParameter."""
    try:
        return parameter.read(value)
    except ValueError as error:
        msg = f"{parameter.name}: found {_shown(value)}; {error}"
        raise BadParameter(msg) from error


def text(name: str, help_: str) -> Parameter:
    """Any text but the empty one; NUL, which nothing stored holds, would end it early in SQL."""

    def read(value: str) -> str:
        if not value:
            msg = "set a text, or leave the parameter out"
            raise ValueError(msg)
        if "\0" in value:
            msg = "leave the NUL out; nothing stored holds one"
            raise ValueError(msg)
        return value

    return Parameter(name, help_, read, {"type": "string", "minLength": 1})


def choice(name: str, help_: str, of: object) -> Parameter:
    """One of a closed set; ``of`` is the set's Literal type."""
    allowed = get_args(of)

    def read(value: str) -> str:
        if value not in allowed:
            msg = f"set one of {', '.join(allowed)}"
            raise ValueError(msg)
        return value

    return Parameter(name, help_, read, {"type": "string", "enum": list(allowed)})


def number(name: str, help_: str, most: int, default: int | None = None) -> Parameter:
    """A whole number from 1 to ``most``."""

    def read(value: str) -> int:
        digits = value.isascii() and value.isdigit() and len(value) <= len(str(most))
        if not digits or not 1 <= int(value) <= most:
            msg = f"set a whole number from 1 to {most}"
            raise ValueError(msg)
        return int(value)

    schema = {"type": "integer", "minimum": 1, "maximum": most}
    return Parameter(
        name, help_, read, schema if default is None else {**schema, "default": default}
    )


def truth(name: str, help_: str) -> Parameter:
    """``true`` or ``false``."""

    def read(value: str) -> bool:
        if value not in _TRUTH:
            msg = "set true or false"
            raise ValueError(msg)
        return _TRUTH[value]

    return Parameter(name, help_, read, {"type": "boolean"})


def time(name: str, help_: str) -> Parameter:
    """An RFC 3339 time with up to nine digits of a second; read as epoch nanoseconds."""
    return Parameter(name, help_, read_time, {"type": "string", "format": "date-time"})


def read_time(value: str) -> int:
    """Epoch nanoseconds of an RFC 3339 time; raises ValueError."""
    mend = "set an RFC 3339 time such as 2026-11-30T13:24:55Z, with + written as %2B in a URL"
    match = _TIME.fullmatch(value)
    if match is None:
        raise ValueError(mend)
    date, clock, fraction, sign, hours, minutes = match.groups()
    try:
        whole = datetime.fromisoformat(f"{date}T{clock}+00:00")
    except ValueError as error:
        raise ValueError(mend) from error
    seconds = (whole - _EPOCH) // timedelta(seconds=1)
    if sign is not None:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds += -offset if sign == "+" else offset
    nanoseconds = seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0"))
    return min(max(nanoseconds, 0), _LATEST)


def _read_trace_id(value: str) -> bytes:
    if not _TRACE_ID.fullmatch(value):
        msg = "set a trace id of 32 hexadecimal digits"
        raise ValueError(msg)
    return bytes.fromhex(value)


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")


_HEX_32: Final = {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"}

KEY: Final = Parameter("key", "The run's opaque key, as lists give it.", str, in_path=True)
TRACE: Final = Parameter(
    "trace_id", "32 hexadecimal digits.", _read_trace_id, _HEX_32, in_path=True
)
SINCE: Final = time("since", "Runs first received at this time or later (this backend's clock).")
UNTIL: Final = time("until", "Runs first received before this time.")
WORKFLOW: Final = text("workflow", "The workflow's name.")
PAGING: Final = (
    number("limit", f"Items of a page, at most {MAX_LIMIT}.", MAX_LIMIT, DEFAULT_LIMIT),
    text("cursor", "Where to go on: `next` of the page before."),
)
BUCKETS: Final = number(
    "buckets",
    "Into how many parts of one round length the time is cut, at most.",
    MAX_BUCKETS,
    DEFAULT_BUCKETS,
)
EVIDENCE_FILTERS: Final = (
    choice("kind", "What is listed; all kinds, one after the other, if left out.", names.Problem),
    WORKFLOW,
    text("service", "The service.name of whoever sent the evidence."),
    SINCE,
    UNTIL,
)
RUN_FILTERS: Final = (
    WORKFLOW,
    text("run_id", "The run's id."),
    choice("status", "What the run reads as.", names.RunStatus),
    choice("verdict", "Runs that have an operation of this verdict.", names.Verdict),
    text("operation", "Runs that have an operation of this name."),
    text("group_id", "Runs that have an attempt of this group; with operation, of both."),
    Parameter("trace_id", "Runs with evidence from this trace.", _read_trace_id, _HEX_32),
    text("error_code", "Runs that failed with this code, or have an operation that did."),
    choice("problem", "Runs of which something is not known or was refused.", names.Problem),
    truth("has_retries", "Whether an attempt with a number above 1 is known."),
    number("min_attempts", "Runs with a group of at least so many known attempts.", MAX_NUMBER),
    choice("origin", "Sent by servers or by browsers.", names.Origin),
    SINCE,
    UNTIL,
    text(
        "q",
        "Words that occur in workflow, run id, correlation id, outcome, error codes, operation"
        " names or group ids; each may be the beginning of one. All have to occur.",
    ),
)
