"""The spool's folder is private, and nobody takes what a living process holds."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from flowmark_otel.deliver.spool import folder
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.model import Diagnostic
from tests.support.spooling import open_spool, segments, torn


def mode(path: Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_and_files_are_private(tmp_path: Path) -> None:
    """E1: the folder is made 0700 and every file in it 0600, whatever the umask allows."""
    before = os.umask(0)
    try:
        path = tmp_path / "deep" / "spool"
        spool = open_spool(path)
        spool.append([b"one", b"two", b"three"])
        one, two, _ = spool.shelf.take(3)
        spool.shelf.settle([one])
        spool.shelf.set_aside([two], "unacknowledged")
        assert mode(path) == mode(path / "quarantine") == 0o700
        files = [each for each in path.rglob("*") if each.is_file()]
        assert len(files) == 3
        assert {mode(each) for each in files} == {0o600}
        spool.close()
    finally:
        os.umask(before)


def test_a_folder_that_all_may_write_is_refused(tmp_path: Path) -> None:
    """E1: who can write into the folder can forge evidence; the error says how to mend it."""
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigurationError, match="folder inside it"):
        open_spool(tmp_path)
    open_spool(tmp_path / "inside").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """E1: another user's folder is refused by name of that user."""
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(ConfigurationError, match=r"another user.*12345"):
        open_spool(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    """E1: a file in its place is a configuration error, at start."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigurationError, match="spool folder"):
            open_spool(path)


def test_what_a_process_holds_cannot_be_claimed(tmp_path: Path) -> None:
    """E1: a file is its holder's until it lets go, also within one process."""
    stem, held = folder.create(tmp_path, 5)
    path = folder.named(tmp_path, stem, folder.SEGMENT)
    assert folder.claim(path) is None
    os.close(held)
    claimed = folder.claim(path)
    assert claimed is not None
    assert folder.claim(path) is None
    os.close(claimed)


def test_what_was_removed_or_is_no_file_cannot_be_claimed(tmp_path: Path) -> None:
    """E1: nothing else in the folder is taken for a segment."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "target").touch()
    os.mkfifo(tmp_path / "fifo")
    assert folder.claim(tmp_path / "absent") is None
    assert folder.claim(tmp_path / "fifo") is None
    with pytest.raises(OSError, match="symbolic links"):
        folder.claim(tmp_path / "link")


def test_a_segment_that_went_while_it_was_opened_is_not_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1: who opens a segment in the moment its holder removes it holds nothing afterwards."""
    stem, held = folder.create(tmp_path, 5)
    path = folder.named(tmp_path, stem, folder.SEGMENT)
    real = fcntl.flock

    def remove_first(descriptor: int, operation: int) -> None:
        path.unlink()
        os.close(held)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    assert folder.claim(path) is None


def test_a_new_segment_that_was_cleared_away_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1: a file that another process took for a left-over, before it was locked, is made anew."""
    real = fcntl.flock
    taken: list[Path] = []

    def clear_first(descriptor: int, operation: int) -> None:
        if not taken:
            taken.extend(tmp_path.glob("*.new"))
            taken[0].unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", clear_first)
    stem, held = folder.create(tmp_path, 5)
    assert len(taken) == 1
    assert list(tmp_path.iterdir()) == [folder.named(tmp_path, stem, folder.SEGMENT)]
    os.close(held)


def test_left_over_files_that_hold_nothing_go(tmp_path: Path) -> None:
    """Fault row 2: a process killed while it began or ended a segment leaves nothing for ever."""
    spool = open_spool(tmp_path)
    for kind in (folder.NEW, folder.ACKS, folder.SEGMENT):
        folder.named(tmp_path, folder.stem(1), kind).touch()
    spool.shelf.adopt()
    assert list(tmp_path.iterdir()) == []


def test_strange_files_are_left_alone(tmp_path: Path) -> None:
    """Fault row 27: a file of a newer version, or of somebody else, is neither read nor removed."""
    newer = tmp_path / f"{folder.stem(1)}.v2.spool"
    newer.write_bytes(b"of a newer version")
    (tmp_path / "notes.txt").write_text("mine")
    spool = open_spool(tmp_path)
    assert spool.shelf.take(10) == []
    assert sorted(tmp_path.iterdir()) == sorted([newer, tmp_path / "notes.txt"])


def test_a_file_that_cannot_be_claimed_is_reported_and_passed_over(tmp_path: Path) -> None:
    """Fault row 5: one file that cannot be opened keeps nobody from the others."""
    first = open_spool(tmp_path)
    first.append([b"record"])
    first.close()
    (tmp_path / f"{folder.stem(0)}.v1.spool").symlink_to("nowhere")
    told: list[Diagnostic] = []
    spool = open_spool(tmp_path, told)
    assert [each.payload for each in spool.shelf.take(10)] == [b"record"]
    spool.shelf.adopt()
    assert len(told) == 1
    assert torn(tmp_path) == b""
    assert len(segments(tmp_path)) == 2
