"""Random histories of two processes on one real folder (E1; fault rows 2, 26, 27)."""

from __future__ import annotations

import shutil
import tempfile
from itertools import count
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from flowmark_otel import names
from flowmark_otel.deliver.spool import Record, Spool
from flowmark_otel.deliver.spool.framing import frame
from tests.support.spooling import drain, open_spool, segments, torn

WHO = st.integers(0, 1)
SHARE = st.integers(0, 12)
# Small, so that histories fill segments (4096 bytes) and begin others.
SIZES = st.sampled_from([10, 300, 2000])
MAX_BYTES = 1 << 20


class Histories(RuleBasedStateMachine):
    """Two processes append, take, settle, give back, set aside, crash and end, in any order.

    A payload begins with a number of its own. ``out`` is what each process was handed and has not
    answered; a crash forgets it. Locks are those of open files, so two spools of one process are
    to each other as two processes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.numbers = count()
        self.appended: set[int] = set()
        self.settled: set[int] = set()
        self.torn = b""
        self.spools: list[Spool] = []
        self.out: list[list[Record]] = [[], []]

    @initialize()
    def begin(self) -> None:
        """Both look at an empty folder."""
        self.spools = [open_spool(self.path, max_bytes=MAX_BYTES) for _ in range(2)]

    @rule(who=WHO, sizes=st.lists(SIZES, min_size=1, max_size=3))
    def append(self, who: int, sizes: list[int]) -> None:
        """Some records with one write."""
        numbers = [next(self.numbers) for _ in sizes]
        payloads = [
            b"%d:" % number + bytes(size) for number, size in zip(numbers, sizes, strict=True)
        ]
        self.spools[who].append(payloads)
        self.appended.update(numbers)

    @rule(who=WHO, limit=st.integers(1, 9))
    def take(self, who: int, limit: int) -> None:
        """Nothing settled comes again, and nothing that anybody alive has."""
        records = self.spools[who].shelf.take(limit)
        assert len(records) <= limit
        found = [number(record) for record in records]
        away = {number(record) for out in self.out for record in out}
        assert len(set(found)) == len(found)
        assert not set(found) & (self.settled | away)
        assert set(found) <= self.appended
        self.out[who] += records

    @rule(who=WHO, share=SHARE)
    def settle(self, who: int, share: int) -> None:
        """The end of what is out: neither its oldest nor all of it need be answered first."""
        answered = self._answered(who, share)
        self.spools[who].shelf.settle(answered)
        self.settled.update(map(number, answered))

    @rule(who=WHO, share=SHARE)
    def set_aside(self, who: int, share: int) -> None:
        """Done with as well, and kept elsewhere."""
        answered = self._answered(who, share)
        self.spools[who].shelf.set_aside(answered, names.UNACKNOWLEDGED)
        self.settled.update(map(number, answered))

    @rule(who=WHO, share=SHARE)
    def again(self, who: int, share: int) -> None:
        """Wait once more."""
        self.spools[who].shelf.again(self._answered(who, share))

    @rule(who=WHO)
    def sync(self, who: int) -> None:
        """Changes nothing that can be seen without a power cut."""
        self.spools[who].sync()

    @rule(who=WHO)
    def adopt(self, who: int) -> None:
        """Takes from dead processes alone: the invariant of ``take`` sees if it does not."""
        self.spools[who].shelf.adopt()

    @rule(who=WHO, tail=st.integers(0, 60))
    def crash(self, who: int, tail: int) -> None:
        """The descriptors go, in the midst of writing a record that never was appended."""
        last = segments(self.path)[-1:]
        open_segment = self.spools[who]._open
        if open_segment is not None and [open_segment.name] == last:
            written = frame(bytes(60), 1)[:tail]
            with open_segment.name.open("ab") as file:
                file.write(written)
            self.torn += written
        self.spools[who].shelf.forget()
        self._next(who)

    @rule(who=WHO)
    def end(self, who: int) -> None:
        """An orderly end leaves what is not settled."""
        self.spools[who].close()
        self._next(who)

    @invariant()
    def no_more_files_than_segments(self) -> None:
        """Acknowledgements do not outlive their segment."""
        held = {each.name.removesuffix(".spool") for each in segments(self.path)}
        assert {each.name.removesuffix(".acks") for each in self.path.glob("*.acks")} <= held

    def teardown(self) -> None:
        """Whatever happened, one more process finds all that was not settled, and then nothing."""
        for spool in self.spools:
            spool.close()
        last = open_spool(self.path)
        found = [int(payload.partition(b":")[0]) for payload in drain(last)]
        last.close()
        assert sorted(found) == sorted(self.appended - self.settled)
        assert len(torn(self.path)) == len(self.torn)
        assert segments(self.path) == []
        shutil.rmtree(self.path)

    def _answered(self, who: int, share: int) -> list[Record]:
        answered = self.out[who][share:]
        del self.out[who][share:]
        return answered

    def _next(self, who: int) -> None:
        self.out[who] = []
        self.spools[who] = open_spool(self.path, max_bytes=MAX_BYTES)


def number(record: Record) -> int:
    """What a payload begins with."""
    return int(record.payload.partition(b":")[0])


TestHistories = Histories.TestCase
TestHistories.__doc__ = "E1: no history loses what was appended, or hands out what was settled."
TestHistories.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
