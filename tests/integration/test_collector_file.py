"""``file``: lines that are there once they are acknowledged, whole or not at all (C6, row 4)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from flowmark_otel.collector.config.options import FileExporter
from flowmark_otel.collector.exporters.file import FileElement
from flowmark_otel.collector.payload import Letter, Letters, Payload, Telemetry
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.wire.transcode import to_json
from tests.support.disks import empty, fill, may_mount, small_disk
from tests.support.elements import SECONDS, refused
from tests.support.signals import SAMPLES

BODY: Final = next(p for p in SAMPLES if p.name == "real_celery_retry.pb").read_bytes()
TRACES: Final = Telemetry("traces", "protobuf", BODY)
LETTER: Final = Letter(1, "Unavailable", "gone", "flowmark", 1, TRACES)


@asynccontextmanager
async def started(path: Path) -> AsyncIterator[FileElement]:
    """A started ``file`` exporter."""
    element = FileElement(FileExporter(path=path))
    await element.start()
    try:
        yield element
    finally:
        await element.close()


def lines(path: Path) -> list[Any]:
    """What the file holds; every line is whole."""
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


async def test_requests_and_letters_are_a_line_each(tmp_path: Path) -> None:
    """Section 9: telemetry as OTLP/JSON, a request a line; letters as they are documented."""
    path = tmp_path / "out.jsonl"
    async with started(path) as element:
        await element.take(TRACES, SECONDS)
        await element.take(Letters((LETTER, LETTER)), SECONDS)
    request, *letters = lines(path)
    assert request == json.loads(to_json(BODY, "traces").body)
    assert [letter["input"] for letter in letters] == [request, request]
    assert path.stat().st_mode & 0o007 == 0


async def test_a_file_that_is_there_is_added_to(tmp_path: Path) -> None:
    """C6: a restart keeps the letters of before; a line torn by a power failure stays apart."""
    path = tmp_path / "out.jsonl"
    async with started(path) as element:
        await element.take(Letters((LETTER,)), SECONDS)
    with path.open("ab") as file:
        file.write(b'{"time":"20')
    async with started(path) as element:
        await element.take(Letters((LETTER,)), SECONDS)
    first, torn, last = path.read_text().splitlines()
    assert json.loads(first) == json.loads(last)
    assert torn == '{"time":"20'


@pytest.mark.parametrize("way", ["moved", "removed", "replaced"])
async def test_a_rotated_file_is_begun_anew(tmp_path: Path, way: str) -> None:
    """Operability: logrotate moves the file away, and what comes after is in a new one."""
    path, old = tmp_path / "out.jsonl", tmp_path / "out.jsonl.1"
    async with started(path) as element:
        await element.take(Letters((LETTER,)), SECONDS)
        if way == "removed":
            path.unlink()
        else:
            path.rename(old)
        if way == "replaced":
            path.touch()
        await element.take(TRACES, SECONDS)
        await element.take(TRACES, SECONDS)
    assert len(lines(path)) == 2
    if way != "removed":
        assert len(lines(old)) == 1


async def test_lines_of_many_at_once_do_not_mix(tmp_path: Path) -> None:
    """C6: requests that come together are written one after the other."""
    path = tmp_path / "out.jsonl"
    payloads: list[Payload] = [TRACES, Letters((LETTER,))]
    async with started(path) as element:
        await asyncio.gather(*(element.take(each, SECONDS) for each in payloads * 20))
    assert len(lines(path)) == 40


@pytest.mark.needs("mount", "umount")
async def test_a_full_disk_is_for_the_moment_and_leaves_no_torn_line(tmp_path: Path) -> None:
    """Row 4: no room is a failure that may pass, the file ends with a whole line, then goes on."""
    if os.geteuid() != 0 or not may_mount(tmp_path / "probe"):
        pytest.skip("only root can mount a small file system, where it may")
    with small_disk(tmp_path / "disk", 128) as disk:
        path = disk / "out.jsonl"
        async with started(path) as element:
            await element.take(TRACES, SECONDS)
            fill(disk)
            whole = path.read_bytes()
            big = Letters((LETTER,) * 3)
            error = await refused(element, big)
            assert (error.name, error.permanent, error.paused) == ("Unavailable", False, False)
            assert "No space left" in str(error)
            assert path.read_bytes() == whole
            empty(disk)
            await element.take(big, SECONDS)
            assert len(lines(path)) == 4


async def test_a_path_that_cannot_be_written_is_a_fault_of_the_file(tmp_path: Path) -> None:
    """Section 9: what can never work is said at the start; what breaks later is to be mended."""
    with pytest.raises(ConfigurationError, match="cannot be written: No such file"):
        async with started(tmp_path / "nowhere" / "out.jsonl"):
            pass
    folder = tmp_path / "folder"
    folder.mkdir()
    async with started(folder / "out.jsonl") as element:
        (folder / "out.jsonl").unlink()
        folder.rmdir()
        error = await refused(element, TRACES)
    assert (error.name, error.paused) == ("Unavailable", True)
