"""Runs a command line of ours in a process that kills itself at a given point; production has none.

``python -m tests.support.failpoints python -m flowmark_otel.cli serve …`` is what ``Serving`` makes
of ``under=UNDER``. ``FLOWMARK_TESTS_FAILPOINT`` is ``POINT:N``: dies when the point is met the
N-th time, counted from 1.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from flowmark_otel.backend.accept import Acceptor
from flowmark_otel.backend.store.session import Session
from flowmark_otel.backend.store.transaction import Transactions
from flowmark_otel.cli import main

VARIABLE: Final = "FLOWMARK_TESTS_FAILPOINT"
UNDER: Final = (sys.executable, "-m", "tests.support.failpoints")
POINTS: Final[dict[str, tuple[type, str]]] = {
    "before-commit": (Transactions, "judge_and_write"),
    "after-commit": (Session, "judge"),
    "before-reply": (Acceptor, "_reply"),
}
"""Dies when the method has returned: all is written, it is durable, the answer is made."""


def arm(setting: str) -> None:
    """Have this process die at the point that the setting names."""
    point, _, number = setting.partition(":")
    owner, name = POINTS[point]
    method: Callable[..., Any] = getattr(owner, name)
    times = count(1)

    def dying(*given: Any, **more: Any) -> Any:
        found = method(*given, **more)
        if next(times) == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, dying)


if __name__ == "__main__":
    arm(os.environ[VARIABLE])
    sys.argv = sys.argv[3:]  # without interpreter, ``-m`` and what is its argument
    main()
