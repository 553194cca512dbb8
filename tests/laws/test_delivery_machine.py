"""Random histories of a sender, a hop and a backend, any of which may die (I1 to I4, I8).

All parts are the real ones on real files: the client's delivery on a spool, a collector's custody
on another, the acceptor on SQLite. What is missing is their threads and the network: steps take
turns, time is a clock's that only waits move.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import TypeAlias
from unittest import mock

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flowmark_otel import names
from flowmark_otel.backend.store import open_store, schema
from flowmark_otel.deliver.judge import Judgement
from flowmark_otel.deliver.spool import codec
from flowmark_otel.deliver.spool.framing import Found, walk
from flowmark_otel.deliver.spool.keeper import Keeper
from flowmark_otel.deliver.transport import NoAnswer
from flowmark_otel.errors import DeliveryError
from flowmark_otel.model import Envelope
from flowmark_otel.testing import FakeClock
from flowmark_otel.testing.clock import START_NS
from tests.support.envelopes import completed, failed, rows, started
from tests.support.faulty import Asked, Died, Fault, Link, Point
from tests.support.loop import loop_thread
from tests.support.modelled import RESOURCE, Backend, Hop, Known, Life, Passing, known

YEAR_NS = 365 * 86_400 * 10**9
SECONDS = st.sampled_from([0.5, 3.0, 30.0])
WORK = st.tuples(st.integers(0, 5), st.none() | st.tuples(st.integers(0, 99), st.integers(0, 2)))
Work: TypeAlias = tuple[int, "tuple[int, int] | None"]
"""How many operations are new, and which one is recorded again, with which end."""

FAULT = st.sampled_from(Fault)
SCRIPT = st.tuples(FAULT, FAULT, FAULT)
Script: TypeAlias = tuple[Fault, Fault, Fault]
HEALED = 3600.0


@cache
def empty_store() -> bytes:
    """A store of the newest schema with nothing in it, made once."""
    with tempfile.TemporaryDirectory() as folder:
        open_store(f"sqlite:///{folder}/store.db").close()
        return Path(folder, "store.db").read_bytes()


class Deliveries(RuleBasedStateMachine):
    """What was recorded goes to the backend, directly or by a hop, whatever dies on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.ends = ExitStack()
        # What a keeper does is done here, in turn: looking for what dead processes left.
        self.ends.enter_context(mock.patch.object(Keeper, "start"))
        self.clock = FakeClock()
        loop = self.ends.enter_context(loop_thread())
        (self.path / "store.db").write_bytes(empty_store())
        self.backend = Backend(f"sqlite:///{self.path}/store.db", self.clock, loop)
        self.late: list[tuple[Asked, bytes]] = []
        self.beyond = Link(self.backend, self.clock, self.late)
        self.through = Link(self.backend, self.clock, self.late)
        self.link = Link(self.backend, self.clock, self.late)
        self.hop = Hop(self.path / "hop", self.clock, loop, self.beyond, self.backend, self.noted)
        self.passing = Passing(self.through)
        self.numbers = count(1)
        self.payloads: dict[str, set[Known]] = {}  # by event id, all that were recorded
        self.spooled: Counter[Known] = Counter()  # found room in the sender's spool
        self.acknowledged: dict[Known, set[str]] = {}  # and what was said of them
        self.first: dict[str, str] = {}  # what the store was first seen to hold: digests by id
        self.settled = 0  # by lives that ended
        self.life = self.begun()

    def begun(self) -> Life:
        """A process of the application."""
        self.recorded = 0  # in this life
        return Life(self.path / "spool", self.clock, self.link, self.noted)

    def noted(self, events: Sequence[Envelope], judgement: Judgement) -> None:
        """An answer was judged, by the sender or by the hop."""
        failed = {each.position: each.state for each in judgement.failures}
        for position, event in enumerate(events):
            state = failed.get(position)
            if state is None:
                self.acknowledged.setdefault(known(event), set()).update(judgement.states)
            else:
                assert state in {names.UNACKNOWLEDGED, names.CONFLICT}
                # I3: only who says something else than others is in conflict.
                assert state != names.CONFLICT or len(self.payloads[event.event_id]) > 1

    # -- the application -------------------------------------------------------------------------
    def record(self, work: Work) -> None:
        """New operations, each with its start and its end, and one known already: its end."""
        new, again = work
        for number in [next(self.numbers) for _ in range(new)]:
            self.put(started(number, ("g", number)), completed(number, ("g", number)))
        if again is not None and self.payloads:
            number = 1 + again[0] % (len(self.payloads) // 2)
            attempt = ("g", number)
            end = failed(number, attempt, code=f"c{again[1]}") if again[1] else None
            self.put(end or completed(number, attempt))

    def put(self, *events: Envelope) -> None:
        """Record events with one call."""
        dropped = self.life.counts().get((names.DROPPED, names.REASON_SPOOL_FULL), 0)
        self.life.put(events, RESOURCE)
        self.recorded += len(events)
        for event in events:
            self.payloads.setdefault(event.event_id, set()).add(known(event))
        if self.life.counts().get((names.DROPPED, names.REASON_SPOOL_FULL), 0) == dropped:
            self.spooled.update(known(event) for event in events)

    @rule(work=WORK, seconds=SECONDS, script=SCRIPT)
    def send_directly(self, work: Work, seconds: float, script: Script) -> None:
        """To the backend."""
        self.send(self.backend, work, seconds, script)

    @rule(work=WORK, seconds=SECONDS, script=SCRIPT, beyond=SCRIPT)
    def send_through(self, work: Work, seconds: float, script: Script, beyond: Script) -> None:
        """By a hop that keeps nothing, with faults on both sides of it."""
        self.through.script.extend(beyond)
        self.send(self.passing, work, seconds, script)
        self.through.script.clear()

    @rule(work=WORK, seconds=SECONDS, script=SCRIPT)
    def send_to_hop(self, work: Work, seconds: float, script: Script) -> None:
        """To one that takes custody."""
        self.send(self.hop, work, seconds, script)

    def send(self, to: Asked, work: Work, seconds: float, script: Script) -> None:
        """Record and flush for so long, with faults; the sender may die of them."""
        self.record(work)
        self.link.to = to
        self.link.script.extend(script)
        try:
            self.life.try_flush(seconds)
        except Died:
            self.sender_dies()
        self.link.script.clear()

    @rule(work=WORK)
    def dies_recording(self, work: Work) -> None:
        """With what it had just recorded."""
        self.record(work)
        self.sender_dies()

    def sender_dies(self) -> None:
        """Memory is lost; the next process finds the spool."""
        self.settled += self.settled_here()
        self.life.backlog.spool.shelf.forget()
        self.life = self.begun()

    @rule(seconds=SECONDS)
    def sender_ends(self, seconds: float) -> None:
        """In order, with some time to deliver."""
        with suppress(DeliveryError):
            self.life.shutdown(seconds)
        self.settled += self.settled_here()
        self.life = self.begun()

    # -- what is around it -----------------------------------------------------------------------
    @precondition(lambda self: self.hop.left())
    @rule(seconds=SECONDS, script=SCRIPT)
    def hop_delivers(self, seconds: float, script: Script) -> None:
        """The hop sends on what it has, with faults; it may die of them."""
        self.beyond.script.extend(script)
        try:
            self.hop.deliver(seconds)
        except Died:
            self.hop.dies(power_cut=False)
        self.beyond.script.clear()

    @rule(power_cut=st.booleans())
    def hop_dies(self, power_cut: bool) -> None:  # noqa: FBT001 - as hypothesis gives it
        """Killed, or without power."""
        self.hop.dies(power_cut=power_cut)

    @rule(change=st.sampled_from(["well", "well", "backend", "hop", "capability"]))
    def around_it(self, change: str) -> None:
        """All is well, or something is missing; row 23: a backend without the capability."""
        capable = change != "capability"
        if capable is not self.backend.capable:
            self.backend.become(capable=capable)
        self.backend.up.set(up=change != "backend")
        self.hop.up.set(up=change != "hop")

    @precondition(lambda self: self.late)
    @rule(chosen=st.integers(0, 20))
    def late_arrives(self, chosen: int) -> None:
        """A request that nobody waits for any more, in whatever order."""
        to, body = self.late.pop(chosen % len(self.late))
        with suppress(NoAnswer):
            to.answer(body, Point.NEVER)

    @rule(years=st.sampled_from([-10, -1, 0, 1, 10]))
    def wall_clock_is_set(self, years: int) -> None:
        """Row 14: as an operator does; nothing may follow from it."""
        self.clock.set_wall(START_NS + years * YEAR_NS)

    # -- what holds ------------------------------------------------------------------------------
    @invariant()
    def acknowledged_is_kept(self) -> None:
        """I1, I2, I3: by who said so."""
        stored = self.stored()
        held = read(self.hop.spool.shelf.unsettled()) | aside(self.path / "hop")
        ids = {event_id for event_id, _ in held}
        for each, said in self.acknowledged.items():
            if said & {names.STORED, names.DUPLICATE}:
                assert each[0] in stored
                assert each[1] in {stored[each[0]], ""}
            else:  # it may meet another payload only after custody was taken
                assert each in held or each[0] in stored or (not each[1] and each[0] in ids)
        for event_id, found in stored.items():
            assert self.first.setdefault(event_id, found) == found
            assert (event_id, found) in self.payloads[event_id]
        assert len(rows(self.backend.store, schema.events)) == len(stored)

    @invariant()
    def counts_add_up(self) -> None:
        """I4: in this life, and over all of them, against the files."""
        counts = self.life.counts()
        assert sum(counts.values()) == self.life.recorded()
        own = self.life.backlog.ids(1 << 20)
        assert counts.get((names.SPOOLED, ""), 0) == len(own)
        assert self.life.recorded() >= self.recorded
        left = len(list(self.life.backlog.spool.shelf.unsettled()))
        assert self.settled + self.settled_here() == self.spooled.total() - left
        assert self.hop.settled + self.hop.settled_here() == self.hop.taken - self.hop.left()

    def settled_here(self) -> int:
        """Events that this life took from the spool for good."""
        counts = Counter(dict(self.life.counts()))
        del counts[names.SPOOLED, ""], counts[names.DROPPED, names.REASON_SPOOL_FULL]
        return counts.total()

    def stored(self) -> dict[str, str]:
        """Of all that was ever recorded what the store holds: digests by id."""
        found = self.backend.known(list(self.payloads))
        return {each.event_id: each.digest for each in found if each.state == names.STORED}

    def teardown(self) -> None:
        """I8: once all is well both spools drain; what was not acknowledged is kept aside."""
        try:
            self.heal()
            assert list(self.life.backlog.spool.shelf.unsettled()) == []
            assert list(self.hop.spool.shelf.unsettled()) == []
            self.acknowledged_is_kept()
            self.counts_add_up()
            kept = aside(self.path / "spool") | aside(self.path / "hop")
            stored = self.stored()
            assert {each for each in self.spooled if each[0] not in stored} <= kept
        finally:
            self.life.backlog.spool.shelf.forget()
            self.hop.spool.shelf.forget()
            self.backend.close()
            self.ends.close()
            shutil.rmtree(self.path)

    def heal(self) -> None:
        """All is there and capable, what was late arrives, and there is time."""
        self.backend.become(capable=True)
        self.backend.up.set(up=True)
        self.hop.up.set(up=True)
        for to, body in self.late:
            to.answer(body, Point.NEVER)
        with suppress(DeliveryError):
            self.life.finish(HEALED)
        self.hop.deliver(HEALED)


def aside(folder: Path) -> set[Known]:
    """What waits for an operator."""
    found: set[Known] = set()
    for path in folder.glob(f"quarantine/*.{names.UNACKNOWLEDGED}"):
        content = path.read_bytes()
        items = walk(lambda size, at, of=content: of[at : at + size], 0, len(content))  # type: ignore[misc]
        found |= read(item.payload for item in items if isinstance(item, Found))
    return found


def read(payloads: Iterable[bytes]) -> set[Known]:
    """The events in payloads of a spool."""
    return {known(codec.decode_envelope(each, len(codec.resource_part(each)))) for each in payloads}


@pytest.mark.timeout(3600)
def test_no_history_loses_what_was_acknowledged(campaign: Callable[[int, int], int]) -> None:
    """I1 to I4, I8 (rows 1, 2, 11, 13, 14, 23, 24): whatever dies, comes twice, late or never."""
    examples = campaign(30, 2000)
    run_state_machine_as_test(
        Deliveries, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None)
    )
