"""What waits for an operator: dead letters in JSON lines, quarantined records of a spool (C7)."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.commands.files import JSON, PROTOBUF, Captured
from flowmark_otel.commands.sniff import LOGS, TRACES
from flowmark_otel.deliver.spool import folder
from flowmark_otel.deliver.spool.codec import (
    Unreadable,
    decode_envelope,
    decode_resource,
    resource_part,
)
from flowmark_otel.deliver.spool.framing import MAGIC, Damage, Found, walk
from flowmark_otel.wire.encode import encode_logs

MOST_RECORDS: Final = 500
"""Quarantined records in one request."""

_SIGNAL_OF: Final = {"resourceSpans": TRACES, "resourceLogs": LOGS}
_QUARANTINED: Final = re.compile(r"\d{20}-[0-9a-f]{16}\.v1\.unacknowledged")
_REQUIRED: Final = (
    names.FAILURE_ATTEMPTS,
    names.FAILURE_EXCEPTION,
    names.FAILURE_MESSAGE,
    names.FAILURE_NODE,
)


class Waiting(NamedTuple):
    """A request to send again: one dead letter, or records of one file and resource.

    ``node``, ``exception`` and ``message`` are the letter's, empty for records. ``size``: letters
    or records in it.
    """

    request: Captured
    letter: bool
    size: int
    node: str = ""
    exception: str = ""
    message: str = ""


class Left(NamedTuple):
    """Something that is not sent again, and why."""

    place: str
    says: str


def waiting(path: Path) -> Iterator[Waiting | Left]:
    """All that a file, a quarantine folder or a spool folder holds, in order.

    In a folder only what was answered without receipt is sent again; the rest is named.
    """
    if path.is_dir():
        inner = path / folder.QUARANTINE
        yield from _folder(inner if inner.is_dir() else path)
    elif _starts_with_record(path):
        yield from _records(path)
    else:
        yield from _letters(path)


def _folder(path: Path) -> Iterator[Waiting | Left]:
    for each in sorted(path.iterdir()):
        if not each.is_file():
            continue
        if _QUARANTINED.fullmatch(each.name):
            yield from _records(each)
        else:
            yield Left(str(each), "holds nothing that can be sent again; kept as it is")


def _starts_with_record(path: Path) -> bool:
    with path.open("rb") as source:
        return source.read(len(MAGIC)) == MAGIC or bool(_QUARANTINED.fullmatch(path.name))


# -- quarantined records ------------------------------------------------------------------------
def _records(path: Path) -> Iterator[Waiting | Left]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _is_written(descriptor):
            says = "is still written to; what comes after this look needs another replay"
            yield Left(str(path), says)
        size = os.fstat(descriptor).st_size
        found = walk(lambda count, at: os.pread(descriptor, count, at), 0, size)
        yield from _requests(path, found)
    finally:
        os.close(descriptor)


def _is_written(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _requests(path: Path, found: Iterable[Found | Damage]) -> Iterator[Waiting | Left]:
    """Records in a row that have one resource, together."""

    def key(item: Found | Damage) -> bytes | None:
        try:
            return resource_part(item.payload) if isinstance(item, Found) else None
        except Unreadable:
            return None

    for part, group in groupby(found, key):
        if part is None:
            for item in group:
                says = "is no record of this version; kept as it is"
                yield Left(f"{path}, bytes {item.start} to {item.end}", says)
            continue
        batch: list[Found] = []
        for item in group:
            batch += [item] if isinstance(item, Found) else []
            if len(batch) == MOST_RECORDS:
                yield _request(path, part, batch)
                batch = []
        if batch:
            yield _request(path, part, batch)


def _request(path: Path, part: bytes, batch: list[Found]) -> Waiting | Left:
    where = f"{path}, bytes {batch[0].start} to {batch[-1].end}"
    try:
        envelopes = [decode_envelope(item.payload, len(part)) for item in batch]
        body = encode_logs(envelopes, decode_resource(part))
    except Unreadable as error:
        return Left(where, f"cannot be read ({error}); kept as it is")
    return Waiting(Captured(where, 0, LOGS, PROTOBUF, body), letter=False, size=len(batch))


# -- dead letters -------------------------------------------------------------------------------
def _letters(path: Path) -> Iterator[Waiting | Left]:
    with path.open("rb") as source:
        for number, line in enumerate(source, 1):
            if line.strip():
                yield _letter(path, number, line)


def _letter(path: Path, number: int, line: bytes) -> Waiting | Left:
    place = f"{path}:{number}"
    try:
        letter = json.loads(line)
    except (ValueError, RecursionError):
        cut = "" if line.endswith(b"\n") else ", cut short"
        return Left(place, f"is no JSON{cut}; dead letters are one object a line")
    if not isinstance(letter, dict) or any(key not in letter for key in _REQUIRED):
        return Left(place, "is no dead letter; captured telemetry goes by flowmark-otel send")
    held = letter.get(names.LETTER_INPUT)
    signal = (
        next((_SIGNAL_OF[key] for key in held if key in _SIGNAL_OF), "")
        if (isinstance(held, dict))
        else ""
    )
    fault = "" if signal else "its input is no OTLP request: it was none when it failed either"
    return Waiting(
        Captured(str(path), number, signal, JSON, json.dumps(held).encode("ascii"), fault),
        letter=True,
        size=1,
        node=str(letter[names.FAILURE_NODE]),
        exception=str(letter[names.FAILURE_EXCEPTION]),
        message=str(letter[names.FAILURE_MESSAGE]),
    )
