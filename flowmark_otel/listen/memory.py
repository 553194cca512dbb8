"""Large buffers go back to the system when they are done with, where the C library is glibc.

By itself it keeps an arena of memory for each thread that ever allocated, learns from large
buffers to keep them, and never looks for free pages in the middle of an arena. After a few large
requests a process then holds hundreds of megabytes for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
from typing import Final

_ARENA_MAX: Final = -8
_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
_ARENAS: Final = 2
_LARGE_BYTES: Final = 1024 * 1024
_KEPT_BYTES: Final = 8 * 1024 * 1024
"""So much of an arena stays when it is free: the next request of the usual size is read into it,
and its pages need not be had from the system anew."""
_SOON: Final = 0.05  # seconds, after which whoever answered has let go of the request


def return_large_buffers() -> None:
    """Say so to the allocator of this process, before its threads start; elsewhere nothing."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, _ARENAS)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back_soon() -> None:
    """Have free pages given back once the request that ends now is gone. Call it on the loop."""
    asyncio.get_running_loop().call_later(_SOON, _give_back)


def _give_back() -> None:
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
