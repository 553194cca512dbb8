"""stamina's reusable callers, which its oldest supported release does not have."""

from __future__ import annotations

from typing import Any

import stamina

from flowmark_otel.adapters.stamina import StaminaInstrumentor
from flowmark_otel.adapters.tenacity import TenacityInstrumentor
from tests.support.adapting import adapted

THREE = ["1 failed (ValueError)", "2 failed (ValueError)", "3 completed"]
FAST: dict[str, Any] = {"wait_initial": 0, "wait_jitter": 0, "wait_max": 0}


class Pushes:
    """What fails twice, as a method."""

    def __init__(self) -> None:
        self.calls = 0

    def push(self) -> int:
        """Push once."""
        self.calls += 1
        if self.calls < 3:
            raise ValueError
        return self.calls

    async def push_async(self) -> int:
        """The same, awaited."""
        return self.push()


async def test_callers() -> None:
    """E3: each call of a caller is a group of its own, with the limit, however it is bound.

    Its name is the function that the call stands in, as for blocks.
    """
    caller = stamina.RetryingCaller(attempts=4, **FAST)
    awaiting = stamina.AsyncRetryingCaller(attempts=4, **FAST)
    with adapted(TenacityInstrumentor(), StaminaInstrumentor()) as recorded:
        assert caller(ValueError, Pushes().push) == 3
        assert caller.on(ValueError)(Pushes().push) == 3
        assert await awaiting(ValueError, Pushes().push_async) == 3
        assert await awaiting.on(ValueError)(Pushes().push_async) == 3
    assert recorded.groups() == [(f"{__name__}.test_callers", THREE)] * 4
    said = {(span.attributes or {})["flowmark.attempt.limit"] for span in recorded.spans}
    assert said == {4}
