"""How long delivery tries; apart from the policy, which costs more to import."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """How long to try, in seconds.

    ``timeout`` bounds one try, ``budget`` all tries of a batch and the waits between them (None:
    for as long as it takes). Waits grow from ``first_wait`` to ``longest_wait``; a server that
    asks for more gets at most ``longest_told``. ``pause`` is the wait where set-up or server is
    broken; ``broken`` bounds such waits for a server's own faults.
    """

    timeout: float = 10.0
    first_wait: float = 0.2
    longest_wait: float = 10.0
    longest_told: float = 300.0
    pause: float = 30.0
    broken: float = 300.0
    budget: float | None = 300.0
