"""Several workers on one store: started together, replaced when one dies, stopped together.

Build order: look at the store, reserve the ports, start telemetry, then the workers, and last make
the keys of a new store. Shutdown is the reverse. A worker that dies takes its requests with it,
unacknowledged; the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import Store
from flowmark_otel.clock import SystemClock
from flowmark_otel.config import ServeOptions
from flowmark_otel.errors import ConfigurationError, Unavailable
from flowmark_otel.listen.logs import say
from flowmark_otel.listen.prometheus import CONTENT_TYPE
from flowmark_otel.listen.telemetry import Page, Telemetry
from flowmark_otel.server.backend import (
    Keyring,
    Started,
    first_keys,
    open_sound_store,
)
from flowmark_otel.server.counting import FOLDER_VARIABLE, size_of
from flowmark_otel.server.ports import reserve
from flowmark_otel.server.readiness import Readiness
from flowmark_otel.server.running import STOP_SECONDS, stop_on_signals
from flowmark_otel.server.worker import READY, Orders

START_SECONDS: Final = 60.0
KILL_SECONDS: Final = 2.0
"""So long after ``STOP_SECONDS`` a worker is killed that has not ended by itself."""

_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 10.0
_NO_WORKER: Final = "no worker is running"

_log = logging.getLogger(__name__)


async def supervise(options: ServeOptions, announce: Callable[[Started], None]) -> bool:
    """Serve with workers until a signal; whether one of them had to be ended by force.

    Raises what ``Server.start`` raises.
    """
    faults = options.faults()
    if faults:
        raise ConfigurationError(faults)
    stopping = stop_on_signals(lambda: None)
    async with AsyncExitStack() as stack:
        store = await asyncio.to_thread(open_sound_store, options, SystemClock(), check=True)
        stack.push_async_callback(asyncio.to_thread, store.close)
        asked = {"grpc": options.grpc, "http": options.http}
        ports = reserve(asked, stack.enter_context(ExitStack()))
        folder = None
        if options.metrics is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flowmark-")))
        pool = Pool(replace(options, grpc=ports["grpc"], http=ports["http"], migrate=False), folder)
        readiness = Readiness(store)

        async def ready() -> str:
            return await readiness.reason() if pool.alive else _NO_WORKER

        telemetry = None
        if options.metrics is not None and folder is not None:
            telemetry = Telemetry(options.metrics, _page(pool, store, folder), ready)
            stack.push_async_callback(telemetry.stop)
            await telemetry.start()
        stack.push_async_callback(pool.stop)
        stack.callback(readiness.drain)
        await pool.start()
        made = Keyring(None, None, ())
        if not options.insecure_no_auth:
            made = await asyncio.to_thread(first_keys, Keys(store))
        metrics = None if telemetry is None else telemetry.address
        announce(Started(ports["grpc"], ports["http"], *made, metrics))
        await stopping.wait()
        say(_log, logging.INFO, "stopping")
    say(_log, logging.INFO, "stopped")
    return pool.forced


def _page(pool: Pool, store: Store, folder: Path) -> Page:
    from flowmark_otel.server import metrics, processes  # noqa: PLC0415  only if asked for

    def made(ready: bool) -> tuple[bytes, str]:  # noqa: FBT001  the one thing it depends on
        alive = pool.alive
        state = metrics.State(size_of(store), ready=ready, workers=len(alive), deaths=pool.deaths)
        own = processes.Processes((os.getpid(), *alive))
        return metrics.page_of(state, own, folder=folder), CONTENT_TYPE

    return made


class Pool:
    """The workers; owned by the loop of the supervisor.

    ``folder`` is where they write their metrics, None where nobody asks for them.
    """

    def __init__(self, options: ServeOptions, folder: Path | None) -> None:
        self._orders = Orders(options)
        self._folder = folder
        self._stopping = False
        self._keeping: list[asyncio.Task[None]] = []
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._serving: set[int] = set()
        self.deaths = 0
        self.forced = False

    @property
    def alive(self) -> tuple[int, ...]:
        """The process ids of the workers that take requests."""
        return tuple(self._serving)

    async def start(self) -> None:
        """Start all; raises what the first that cannot start says."""
        count = self._orders.options.workers
        starting = [asyncio.create_task(self._spawn()) for _ in range(count)]
        found = await asyncio.gather(*starting, return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        self._keeping = [
            asyncio.create_task(self._keep(each))
            for each in found
            if not isinstance(each, BaseException)
        ]

    async def stop(self) -> None:
        """SIGTERM for all; SIGKILL for what has not ended ``KILL_SECONDS`` after its bound."""
        self._stopping = True
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        running = list(self._processes.values())
        for process in running:
            _signal(process, signal.SIGTERM)
        if running:
            waiting = [asyncio.create_task(process.wait()) for process in running]
            _, late = await asyncio.wait(waiting, timeout=STOP_SECONDS + KILL_SECONDS)
            for process in running:
                _signal(process, signal.SIGKILL)
            await asyncio.gather(*waiting)
            self.forced = bool(late) or any(
                process.returncode not in {0, -signal.SIGTERM} for process in running
            )
        self._processes.clear()
        self._serving.clear()

    async def _keep(self, process: asyncio.subprocess.Process) -> None:
        """Wait for a worker to die, and put another in its place, ever less eagerly."""
        wait = _FIRST_WAIT
        while True:
            began = asyncio.get_running_loop().time()
            status = await process.wait()
            self._bury(process, status)
            if asyncio.get_running_loop().time() - began > _LONGEST_WAIT:
                wait = _FIRST_WAIT
            while True:
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
                try:
                    process = await self._spawn()
                except (ConfigurationError, Unavailable, OSError) as error:
                    say(_log, logging.ERROR, "worker_not_started", reason=error)
                else:
                    break
            say(_log, logging.WARNING, "worker_replaced", worker=process.pid)

    def _bury(self, process: asyncio.subprocess.Process, status: int) -> None:
        self.deaths += 1
        self._forget(process)
        say(_log, logging.ERROR, "worker_died", worker=process.pid, reason=_ended(status))

    def _forget(self, process: asyncio.subprocess.Process) -> None:
        self._processes.pop(process.pid, None)
        self._serving.discard(process.pid)
        if self._folder is not None:
            from flowmark_otel.server.metrics import forget  # noqa: PLC0415  only if asked for

            forget(process.pid, self._folder)

    async def _spawn(self) -> asyncio.subprocess.Process:
        """A worker that is ready; raises what it says instead."""
        environment = dict(os.environ)
        environment.pop(FOLDER_VARIABLE, None)
        if self._folder is not None:
            environment[FOLDER_VARIABLE] = str(self._folder)
        # The path as it is here: run with -m, a module beside the caller could hide one of ours.
        code = (
            f"import sys; sys.path[:] = {sys.path!r};"
            "from flowmark_otel.server.worker import main; main()"
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is the supervisor's; a worker is told by it
        )
        self._processes[process.pid] = process
        said = ""
        try:
            said = await asyncio.wait_for(self._greeting(process), START_SECONDS)
        except asyncio.TimeoutError:
            said = json.dumps({"message": f"not ready within {START_SECONDS:g} seconds"})
        finally:
            if said != READY and not self._stopping:
                _signal(process, signal.SIGKILL)
                await process.wait()
                self._forget(process)
        if said != READY:
            raise _fault(said, process.returncode)
        self._serving.add(process.pid)
        return process

    async def _greeting(self, process: asyncio.subprocess.Process) -> str:
        if process.stdin is None or process.stdout is None:
            return ""
        with contextlib.suppress(ConnectionError):  # it died at once: its output ends too
            process.stdin.write(self._orders.line())
            await process.stdin.drain()
        return (await process.stdout.readline()).decode().strip()


def _fault(said: str, status: int | None) -> ConfigurationError | Unavailable:
    if not said:
        return Unavailable(f"a worker ended before it was ready: {_ended(status or 0)}")
    told = json.loads(said)
    if told.get("faults"):
        return ConfigurationError(told["faults"])
    return Unavailable(str(told["message"]))


def _ended(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    return f"signal {signal.Signals(-status).name}"


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
