"""Captured telemetry on disk: OTLP JSON, JSON lines (one request a line) or protobuf (E5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from flowmark_otel.commands.sniff import LOGS, TRACES, count_items, signals_by_likelihood
from flowmark_otel.errors import TooLarge, Unparsable
from flowmark_otel.signals import NO_SIGNALS, Signals
from flowmark_otel.wire.decode import Request, decode_logs, decode_traces

JSON: Final = "json"
PROTOBUF: Final = "protobuf"

_SIGNAL_OF: Final = {"resourceSpans": TRACES, "resourceLogs": LOGS}
_METRICS: Final = "resourceMetrics"
_SHOWN_KEYS: Final = 3


class Captured(NamedTuple):
    """One request as a file holds it.

    ``line`` is 1-based, 0 where the file is one request. Where ``signal`` is empty the request is
    none of ours: ``fault`` says what is wrong with it, and is empty too for metrics.
    """

    path: str
    line: int
    signal: str
    encoding: str
    body: bytes
    fault: str = ""

    @property
    def place(self) -> str:
        """``file`` or ``file:line``."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def decode(self, signals: Signals = NO_SIGNALS) -> Request:
        """The items that are marked, by us or by ``signals``; raises Unparsable, TooLarge."""
        if self.signal == LOGS:
            return decode_logs(self.body, self.encoding)
        return decode_traces(self.body, self.encoding, signals)


def items_in(request: Captured) -> int:
    """All spans or log records of a request, decoded or not; decoders skip what is not marked."""
    return count_items(request.body) if request.encoding == PROTOBUF else 0


def captured(path: Path) -> Iterator[Captured]:
    """The requests of a file in order, format and signal found by their content.

    A file of JSON lines is read line by line, any other as a whole.
    """
    first = list(islice(_lines(path), 2))
    if not first:
        yield Captured(str(path), 0, TRACES, PROTOBUF, b"")
    elif not first[0][1].startswith((b"{", b"[")):
        yield _protobuf(path)
    elif not _document(path, *first[0]).fault:
        several = len(first) > 1
        for number, line in _lines(path):
            yield _document(path, number if several else 0, line)
    else:
        yield from _whole(path)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, stripped, with their numbers."""
    with path.open("rb") as source:
        for number, line in enumerate(source, 1):
            stripped = line.strip()
            if stripped:
                yield number, stripped


def _whole(path: Path) -> Iterator[Captured]:
    """A file whose first line is no request: one document, a request in protobuf, or bad lines."""
    body = path.read_bytes()
    found = _document(path, 0, body)
    if found.fault and body.startswith(b"\n"):  # also the first byte of any protobuf request
        binary = _protobuf(path)
        found = found if binary.fault else binary
    if found.fault:
        documents = [_document(path, *line) for line in _lines(path)]
        if any(document.signal for document in documents):
            yield from documents
            return
    yield found


def _document(path: Path, line: int, body: bytes) -> Captured:
    """One JSON document, judged by its top level alone."""
    try:
        top = json.loads(body)
    except (ValueError, RecursionError) as error:
        return Captured(str(path), line, "", JSON, body, f"is no JSON ({error})")
    if not isinstance(top, dict):
        return Captured(str(path), line, "", JSON, body, "is JSON but no object")
    if not top:
        return Captured(str(path), line, TRACES, JSON, body)
    for key in top:
        if key in _SIGNAL_OF:
            return Captured(str(path), line, _SIGNAL_OF[key], JSON, body)
    if _METRICS in top:
        return Captured(str(path), line, "", JSON, body)
    shown = ", ".join(sorted(top)[:_SHOWN_KEYS])
    fault = f"has neither resourceSpans nor resourceLogs, but {shown}"
    return Captured(str(path), line, "", JSON, body, fault)


def _protobuf(path: Path) -> Captured:
    body = path.read_bytes()
    fault = ""
    for signal in signals_by_likelihood(body):
        found = Captured(str(path), 0, signal, PROTOBUF, body)
        try:
            found.decode()
        except TooLarge:
            return found  # whoever decodes it says so
        except Unparsable as error:
            fault = fault or f"is neither JSON nor an OTLP protobuf request ({error})"
        else:
            return found
    return Captured(str(path), 0, "", PROTOBUF, body, fault)
