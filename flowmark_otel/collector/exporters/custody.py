"""A spool that takes custody of envelopes, and the one thread that delivers it (A24).

The client's backlog, sender and courier; what differs is that nothing is taken before it is
synced. Concurrent messages share a sync (group commit).
"""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.collector.element import ElementError
from flowmark_otel.collector.events import Event
from flowmark_otel.collector.meter import SpoolReading
from flowmark_otel.collector.policy import Rules
from flowmark_otel.deliver.counts import Ledger
from flowmark_otel.deliver.courier import Courier
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.pace import Flags, Pace, Progress
from flowmark_otel.deliver.reporter import Reporter
from flowmark_otel.deliver.sender import Sender
from flowmark_otel.deliver.spool import Mark, SpoolBacklog, SpoolFull, codec
from flowmark_otel.deliver.transport import Transport
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.fold import digest
from flowmark_otel.model import Diagnostic, Envelope


class CourierOf(Protocol):
    """Makes the courier of a spool."""

    def __call__(  # noqa: D102  the arguments of ``Courier``
        self,
        transport: Callable[[], Transport],
        reporter: Reporter,
        clock: Clock,
        pace: Pace,
        flags: Flags,
        progress: Progress,
    ) -> Courier: ...


_ID_FILE: Final = "collector-id"
_ID: Final = re.compile(r"[0-9a-f]{32}")
_FULL_SECONDS: Final = 5.0
_JOIN_SECONDS: Final = 5.0
_NANO: Final = 1_000_000_000


class Custody:
    """Takes events for good; any loop may call ``take``, one thread delivers.

    ``courier`` makes what carries its batches. ``report`` is told what goes wrong. Raises
    ConfigurationError for a folder that cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        max_bytes: int,
        transport: Transport,
        clock: Clock,
        report: Callable[[Diagnostic], object],
        *,
        pace: Pace,
        courier: CourierOf,
    ) -> None:
        self._clock = clock
        self._pace = pace
        self._reporter = Reporter(clock, report)
        self._flags = Flags(clock, pace)
        self._ledger = Ledger(names.SPOOLED)
        self._progress = Progress(self._ledger.look)
        self._backlog = SpoolBacklog(
            directory,
            clock=clock,
            report=self._reporter.post,
            on_found=lambda: self._flags.wake(0),
            max_bytes=max_bytes,
        )
        self.custodian = _custodian(directory)
        self._transport = transport
        carrying = courier(
            lambda: transport, self._reporter, clock, pace, self._flags, self._progress
        )
        self._sender = Sender(
            self._backlog, carrying, self._ledger, self._reporter, pace, self._flags
        )
        self._thread: threading.Thread | None = None
        self._syncing: asyncio.Future[None] | None = None  # the loop's

    def start(self) -> None:
        """Deliver from now on, first of all what was left behind."""
        self._backlog.spool.shelf.adopt()
        self._thread = threading.Thread(target=self._sender.run, name="flowmark-send", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Begin no further request, wait for the one in flight, sync, let go of the files."""
        self._flags.halt()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
        self._transport.close()
        self._backlog.close()
        self._reporter.drain()

    # -- taking ---------------------------------------------------------------------------------
    async def take(self, events: Sequence[Event]) -> None:
        """Write and sync all events. Raises ElementError where they could not be; none counts then.

        Those that were written and could not be synced are delivered nevertheless, under the ids
        they have.
        """
        mark = await asyncio.to_thread(self._append, events)
        self._flags.wake(self._backlog.waiting())
        await self._synced(mark)

    def _append(self, events: Sequence[Event]) -> Mark:
        prefixes: dict[int, bytes] = {}
        payloads = []
        for event in events:
            prefix = prefixes.get(id(event.resource))
            if prefix is None:
                prefix = prefixes[id(event.resource)] = codec.encode_resource(event.resource)
            payloads.append(prefix + codec.encode_envelope(event.envelope))
        self._ledger.enter(len(payloads))
        try:
            return self._backlog.spool.append(payloads)
        except SpoolFull as error:
            self._ledger.retract(len(payloads))
            msg = "the spool is full"
            raise ElementError(names.REASON_QUEUE_FULL, msg, retry_after=_FULL_SECONDS) from error
        except (OSError, ValueError, TypeError, RecursionError) as error:
            self._ledger.retract(len(payloads))
            msg = f"the spool cannot be written: {error}"
            raise ElementError(names.REASON_UNAVAILABLE, msg, retry_after=_FULL_SECONDS) from error

    async def _synced(self, mark: Mark) -> None:
        """Wait for a sync that began after the append; whoever waits meanwhile shares the next."""
        spool = self._backlog.spool
        loop = asyncio.get_running_loop()
        while not spool.is_synced(mark):
            if mark.segment.unsyncable:
                msg = "the spool cannot be synced to disk"
                raise ElementError(names.REASON_UNAVAILABLE, msg, retry_after=_FULL_SECONDS)
            if self._syncing is None:
                self._syncing = loop.run_in_executor(None, spool.sync)
                self._syncing.add_done_callback(self._synced_once)
            with suppress(OSError):  # of whichever segment: the mark says whether it is ours
                await asyncio.shield(self._syncing)

    def _synced_once(self, syncing: asyncio.Future[None]) -> None:
        self._syncing = None
        if not syncing.cancelled():
            error = syncing.exception()
            if error is not None:
                self._reporter.condition(names.DIAGNOSTIC_SPOOL_FAILED, f"not synced: {error}")

    # -- state ----------------------------------------------------------------------------------
    def reading(self) -> SpoolReading:
        """Its size on disk, and the age of the oldest event that is not delivered."""
        oldest = self._backlog.spool.shelf.oldest()
        age = 0.0 if oldest is None else max(self._clock.now_ns() - oldest, 0) / _NANO
        return SpoolReading(self._backlog.spool.size(), age)

    def counts(self) -> tuple[int, Mapping[tuple[str, str], int]]:
        """The events of this process, and their states by reason, which add up to them (I4)."""
        return self._ledger.snapshot()

    def held(self, event_ids: Sequence[str]) -> dict[str, str]:
        """Of these ids those that are in custody, with the digests of their events in hex."""
        wanted = set(event_ids)
        traces = {match[1].encode() for each in wanted if (match := _TRACE.fullmatch(each))}
        if not traces:
            return {}
        found: dict[str, str] = {}
        for payload in self._backlog.spool.shelf.unsettled():
            envelope = _of_traces(payload, traces)
            if envelope is not None and envelope.event_id in wanted:
                found[envelope.event_id] = digest(envelope).hex()
        return found


_TRACE: Final = re.compile(r"(?:run|op)-([0-9a-f]{32})-.*", re.DOTALL)
_IDS: Final = re.compile(rb'\["flowmark\.[a-z.]+","([0-9a-f]{32})","[0-9a-f]{16}",')


def _of_traces(payload: bytes, traces: Collection[bytes]) -> Envelope | None:
    """The envelope in a payload if it is of one of these traces, ids in hex; others stay as is."""
    try:
        size = len(codec.resource_part(payload))
        match = _IDS.match(payload, size)
        if match is None or match[1] not in traces:
            return None
        return codec.decode_envelope(payload, size)
    except codec.Unreadable:
        return None


def _custodian(directory: Path) -> str:
    """The id of whoever takes custody here, the same after each restart."""
    path = directory / _ID_FILE
    with suppress(OSError):
        found = path.read_text().strip()
        if _ID.fullmatch(found):
            return found
    made = uuid.uuid4().hex
    fresh = path.with_suffix(".new")
    try:
        fresh.write_text(f"{made}\n")
        fresh.replace(path)
    except OSError as error:
        raise ConfigurationError([f"spool folder {directory}: {error.strerror}"]) from error
    return made


def pace_of(rules: Rules) -> Pace:
    """How fast a spool is delivered: for as long as it takes, since it is kept."""
    limits = Limits(
        timeout=rules.try_seconds,
        first_wait=rules.first_wait,
        longest_wait=rules.longest_wait,
        budget=None,
    )
    return Pace(limits=limits)
