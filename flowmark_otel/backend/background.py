"""Threads of the backend that work on the store beside requests, until they are stopped."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class Background(ABC):
    """A daemon thread that runs until it is stopped; stop it before the store is closed.

    ``_stopping`` is set by ``stop``; what runs looks at it, and waits for it instead of sleeping.
    """

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after what it has in hand; may be called again, and without a start."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Work until ``_stopping`` is set."""
