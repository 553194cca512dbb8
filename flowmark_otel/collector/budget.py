"""The failure budget of a node (C3): pure; the clock's seconds are arguments.

More than ``most`` failed messages within the window spend it. The node then refuses until a whole
window has passed, and lets one message through as a probe: if that ends well the budget is whole
again, if it fails another window passes.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Enter(Enum):
    """Whether a message may come in."""

    YES = "yes"
    PROBE = "probe"
    NO = "no"


class Budget(NamedTuple):
    """``window`` in seconds; ``failures`` are the times of those that still count, oldest first.

    ``spent_at``: since when it refuses, None while it does not. ``probing``: one message is being
    tried.
    """

    most: int
    window: float
    failures: tuple[float, ...] = ()
    spent_at: float | None = None
    probing: bool = False

    @property
    def spent(self) -> bool:
        """Whether the node refuses."""
        return self.spent_at is not None


def enter(budget: Budget, now: float) -> tuple[Enter, Budget]:
    """Whether the next message may come in, and the budget from then on."""
    if budget.spent_at is None:
        return Enter.YES, budget
    if budget.probing or now - budget.spent_at < budget.window:
        return Enter.NO, budget
    return Enter.PROBE, budget._replace(probing=True)


def wait(budget: Budget, now: float) -> float:
    """Seconds until a probe may come in; zero where one may, or is on its way."""
    if budget.spent_at is None:
        return 0.0
    return max(budget.spent_at + budget.window - now, 0.0)


def failed(budget: Budget, now: float, *, probe: bool = False) -> Budget:
    """A message failed."""
    if probe:
        return budget._replace(spent_at=now, probing=False, failures=())
    if budget.spent_at is not None:
        return budget  # it came in before
    counted = (*(at for at in budget.failures if now - at < budget.window), now)
    if len(counted) > budget.most:
        return budget._replace(failures=(), spent_at=now)
    return budget._replace(failures=counted)


def completed(budget: Budget, *, probe: bool = False) -> Budget:
    """A message ended well; only a probe's end says anything new."""
    return budget._replace(failures=(), spent_at=None, probing=False) if probe else budget


def abandoned(budget: Budget, *, probe: bool = False) -> Budget:
    """Nobody waits for a message any more, so nothing is known of it: the next is a probe again."""
    return budget._replace(probing=False) if probe else budget
