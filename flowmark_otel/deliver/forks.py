"""One fork hook for all that has to start anew in a child; nothing is kept alive by it.

The sending thread imports what it needs. A fork in the middle of that would leave the child with
half a module and nobody to finish it, so a fork waits until the import is done.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """What has something that a child must not share."""

    def after_fork(self) -> None:
        """Start anew; called in the child, and harmless in the parent."""
        ...


_registered: Final[WeakSet[Forked]] = WeakSet()


def register(thing: Forked) -> None:
    """Call its ``after_fork`` in every child, for as long as it lives."""
    _registered.add(thing)


importing: Final = threading.RLock()
"""Held while modules are imported on a thread of ours."""

_MAX_WAIT: Final = 5.0
_holding: Final = threading.local()


def _before_fork() -> None:
    _holding.held = importing.acquire(timeout=_MAX_WAIT)


def _after_fork_in_parent() -> None:
    if getattr(_holding, "held", False):
        importing.release()


def _after_fork_in_child() -> None:
    _after_fork_in_parent()
    for thing in list(_registered):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
