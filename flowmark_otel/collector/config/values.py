"""Values of the configuration file that have a rule of their own; each says the rule and the mend.

A message never quotes what may be a credential: headers, tokens, user and password of an address.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from flowmark_otel import names
from flowmark_otel.collector.element import INVALID_ENVELOPE, error_name
from flowmark_otel.config import parsers

ERROR_NAMES: Final = (
    INVALID_ENVELOPE,
    *(
        error_name(reason)
        for reason in (
            names.REASON_UNACKNOWLEDGED,
            names.REASON_MALFORMED_RECEIPT,
            names.REASON_COUNT_MISMATCH,
            names.REASON_REJECTED,
            names.REASON_UNAVAILABLE,
            names.REASON_UNAUTHORIZED,
            names.REASON_TIMEOUT,
            names.REASON_TOO_LARGE,
            names.REASON_QUEUE_FULL,
        )
    ),
)
"""What ``retry_on`` and ``no_retry_on`` can name (contract, section 9)."""

_SHOWN: Final = 60


def shown(value: object) -> str:
    """A value of the file as a message may hold it: one line of ASCII, cut."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` where a known word is near, else what there is; empty for nothing."""
    choices = sorted(known)
    found = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if found:
        return f"; did you mean {found[0]}?"
    return f"; there is {', '.join(choices)}" if choices else ""


def _whole(value: object) -> object:
    """Pydantic reads true as 1."""
    if isinstance(value, bool):
        msg = f"is {str(value).lower()}; set an integer"
        raise ValueError(msg)  # noqa: TRY004  only that is a fault of the file for pydantic
    return value


def _error_names(found: tuple[str, ...]) -> tuple[str, ...]:
    for name in found:
        if name not in ERROR_NAMES:
            msg = f"{shown(name)} is no error name{nearest(name, ERROR_NAMES)}"
            raise ValueError(msg)
    return found


def _address(value: str) -> str:
    parsers.split_address(value)
    return value


def _web_address(value: str) -> str:
    """An address with a scheme, or as OTLP over gRPC has it ``HOST:PORT``."""
    given = value.strip()
    if "@" in given:
        msg = "holds a user or password; set them in headers, as authorization"
        raise ValueError(msg)
    if "://" in given:
        return parsers.web_address(given)
    try:
        _, port = parsers.split_address(given)
    except ValueError as error:
        msg = f"{shown(value)} is no address; set one such as http://127.0.0.1:4318"
        raise ValueError(msg) from error
    if port == 0:
        msg = "has port 0; set the port that the other side listens on"
        raise ValueError(msg)
    return given


def _path(value: Path) -> Path:
    if not value.name or "\0" in str(value):
        msg = f"{shown(str(value))} names no file; set a path such as ./dead-letters.jsonl"
        raise ValueError(msg)
    if value.is_dir():
        msg = f"{shown(str(value))} is a folder; name a file in it"
        raise ValueError(msg)
    return value


def _file(value: Path) -> Path:
    if "\0" in str(value) or not value.is_file():
        msg = f"there is no file {shown(str(value))}; name one that exists"
        raise ValueError(msg)
    return value


def _directory(value: Path) -> Path:
    try:
        return parsers.folder(value)
    except ValueError as error:
        msg = f"{error}; name a folder, which is made where there is none"
        raise ValueError(msg) from error


def _joined(value: object) -> object:
    """A list of names is a comma list too."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    return value


def _signals(value: str) -> str:
    parsers.signals(value)
    return value


def _header_name(value: str) -> str:
    return parsers.headers({value: ""})[0][0]


def _header_value(value: str) -> str:
    try:
        return parsers.headers({"value": value})[0][1]
    except ValueError as error:
        msg = "has characters that no header can hold; set printable ASCII"
        raise ValueError(msg) from error


def _token(value: str) -> str:
    if value != value.strip():
        msg = "has white space around it; take it away"
        raise ValueError(msg)
    return parsers.secret(value)


Whole: TypeAlias = Annotated[int, BeforeValidator(_whole)]
ErrorNames: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_error_names)]
Address: TypeAlias = Annotated[str, AfterValidator(_address)]
WebAddress: TypeAlias = Annotated[str, AfterValidator(_web_address)]
PathName: TypeAlias = Annotated[Path, AfterValidator(_path)]
File: TypeAlias = Annotated[Path, AfterValidator(_file)]
Directory: TypeAlias = Annotated[Path, AfterValidator(_directory)]
SignalList: TypeAlias = Annotated[str, BeforeValidator(_joined), AfterValidator(_signals)]
HeaderName: TypeAlias = Annotated[str, AfterValidator(_header_name)]
HeaderValue: TypeAlias = Annotated[str, AfterValidator(_header_value)]
Token: TypeAlias = Annotated[str, AfterValidator(_token)]
