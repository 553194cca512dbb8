"""The server's log: one JSON object a line, nothing in it that a peer or a key put there."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from flowmark_otel.listen import logs

KEY = "fmk_abcdefgh01234567_" + "9f" * 32
LOG = logging.getLogger("flowmark_otel.tests")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the log goes; the loggers are as they were afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.StringIO()
    logs.configure("info", written)
    yield written
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in logs._NOISY:
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """What was written, each line read as JSON."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_with_its_fields(stream: io.StringIO) -> None:
    """Reliability, "log injection": time, level, event and fields; one line whatever is in them."""
    logs.say(
        LOG, logging.WARNING, "worker_died", worker=7, reason="a\nb\x1b[2J\u2028\udc80", rate=2.5
    )
    [line] = lines(stream)
    assert (line["level"], line["event"], line["worker"]) == ("warning", "worker_died", 7)
    assert line["time"].endswith("Z")
    text = stream.getvalue()
    assert text.isascii()
    assert text.count("\n") == 1
    assert not any(character < " " for character in text.rstrip("\n"))


def test_no_key_is_ever_written(stream: io.StringIO) -> None:
    """Security, "keys": what looks like one of ours is cut out of fields, texts and errors."""
    logs.say(LOG, logging.ERROR, "refused", header=f"Bearer {KEY}", several=[KEY, "bearer abc.def"])
    LOG.error("cannot use %s", KEY)
    try:
        int(KEY)
    except ValueError:
        LOG.exception("failed with %s", f"authorization: Bearer%20{KEY}")
    text = stream.getvalue()
    assert len(lines(stream)) == 3
    assert "9f9f" not in text
    assert "abc.def" not in text
    assert lines(stream)[2]["exception"] == "ValueError"


def test_libraries_log_through_it_and_are_quiet(stream: io.StringIO) -> None:
    """D5: uvicorn and gRPC write the same lines; what any peer could cause is not written."""
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("uvicorn.error").error("Exception in ASGI application")
    logging.getLogger("grpc._cython.cygrpc").error("unexpected")
    LOG.debug("nobody asked")
    assert [line["event"] for line in lines(stream)] == ["library", "library"]
    assert {line["logger"] for line in lines(stream)} == {"uvicorn.error", "grpc._cython.cygrpc"}


def test_what_is_too_long_is_cut_and_odd_numbers_are_text(stream: io.StringIO) -> None:
    """Reliability, "log injection": a line is bounded, and JSON for every reader."""
    logs.say(LOG, logging.INFO, "long", text="x" * 100_000, number=float("nan"), none=None)
    [line] = lines(stream)
    assert len(line["text"]) < 3000
    assert (line["number"], line["none"]) == ("nan", None)


@pytest.mark.parametrize("level", logs.LEVELS)
def test_a_level_is_a_setting(stream: io.StringIO, level: str) -> None:
    """D5: from that level on, nothing below."""
    logs.configure(level, stream)
    for each in logs.LEVELS:
        logs.say(LOG, logging.getLevelName(each.upper()), each)
    found = [line["event"] for line in lines(stream)]
    assert found == list(logs.LEVELS)[logs.LEVELS.index(level) :]
