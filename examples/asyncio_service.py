"""Attempts in asyncio: many syncs at once, each a run, with a time limit on every try.

A flaky CRM is asked by several tasks. The program retries in plain code; `current_attempt` tells
the code inside which try it is, and a task that is cancelled reads failed, not gone. Start a
backend, then run this file; README.md has the commands.
"""

from __future__ import annotations

import asyncio
from typing import TypedDict

import flowmark_otel as flowmark

LIMIT = 3


class Synced(TypedDict):
    """What a run reports."""

    imported: int


def same_for_every_attempt(workflow: str, run_id: str, operation: str, group_id: str) -> str:
    """The idempotency key of a batch: the CRM can tell a second try from a second batch."""
    return f"{workflow}:{run_id}:{operation}:{group_id}"


# Named once: a typing mistake in a name would be another workflow.
CRM_SYNC = flowmark.WorkflowDefinition("crm.sync", result=Synced)
PUSH = CRM_SYNC.operation(
    "push-to-crm", limit=LIMIT, system="crm", idempotency_key=same_for_every_attempt
)


class CrmUnavailableError(Exception):
    """The CRM did not take a batch."""


class Crm:
    """A CRM that is down on its first tries of every batch, and takes each batch once."""

    def __init__(self, down: int) -> None:
        self._down = down
        self._taken: dict[str, int] = {}

    async def push(self, batch: list[str]) -> int:
        """Take a batch; says how many customers were imported."""
        await asyncio.sleep(0.01)
        attempt = flowmark.current_attempt()
        if attempt.number <= self._down:
            raise CrmUnavailableError
        return self._taken.setdefault(str(attempt.idempotency_key), len(batch))


async def one_try(
    flow: flowmark.Workflow[Synced], crm: Crm, batch: list[str], attempt: flowmark.Attempt
) -> int | None:
    """The customers imported, or None if another try is due."""
    try:
        return await flow.acall(
            PUSH,
            crm.push,
            batch,
            attempt=attempt,
            map_error=lambda _: flowmark.Failure("CRM_UNAVAILABLE", retryable=True),
        )
    except CrmUnavailableError:
        if attempt.number == LIMIT:
            raise
        return None


async def sync(crm: Crm, name: str, batch: list[str]) -> int:
    """One run: up to three tries, the loop is the application's own."""
    with CRM_SYNC.start() as flow:
        for number in range(1, LIMIT + 1):
            imported = await one_try(flow, crm, batch, flowmark.Attempt(name, number))
            if imported is not None:
                flow.done(outcome="complete", result={"imported": imported})
                return imported
    msg = "unreachable"
    raise AssertionError(msg)


async def patient_sync() -> None:
    """A try that is cancelled because it takes too long has failed."""

    async def never() -> None:
        await asyncio.Event().wait()

    flow = CRM_SYNC.start()
    try:
        await asyncio.wait_for(
            flow.acall(PUSH, never, attempt=flowmark.Attempt("slow", 1)), timeout=0.05
        )
    except asyncio.TimeoutError:
        flow.fail(code="TOO_SLOW", outcome="none")


async def main() -> None:
    """Sync three batches at once, and give up on a fourth."""
    batches = {f"batch-{size}": ["customer"] * size for size in (1, 2, 3)}
    crm = Crm(down=1)
    imported = await asyncio.gather(*(sync(crm, name, batch) for name, batch in batches.items()))
    print(f"imported {sum(imported)} customers in {len(batches)} runs")
    await patient_sync()
    # Flushing waits: in a service, call it from a thread.
    await asyncio.to_thread(flowmark.flush)


if __name__ == "__main__":
    asyncio.run(main())
