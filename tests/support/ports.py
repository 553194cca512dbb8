"""Waiting for programs of others, which do not say when they listen."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterable
from typing import Any

_TURN = 0.02


def listening(process: subprocess.Popen[Any], addresses: Iterable[str], seconds: float) -> bool:
    """Wait until it listens on all of them, each ``HOST:PORT``; False if it ended, or too late."""
    until = time.monotonic() + seconds
    for address in addresses:
        host, _, port = address.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    return False
                time.sleep(_TURN)
    return True
