"""Children of ``multiprocessing``, by the start method and in the way that the arguments name."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import util
from typing import Any

from tests.support.process_apps.record import record, say_hooks


def work() -> None:
    """Record in a child, whose end runs hooks of its own kind."""
    util.Finalize(None, say_hooks, exitpriority=0)
    record("child")


def stay(told: int) -> None:
    """Record in a child that goes on until it is ended."""
    record("child")
    os.write(told, b"1")
    threading.Event().wait()


def main(method: str, way: str) -> None:
    """Record here and in a child, and end."""
    record("parent")
    context: Any = multiprocessing.get_context(method)
    if way == "process":
        process = context.Process(target=work)
        process.start()
        process.join()
    elif way == "executor":
        with ProcessPoolExecutor(1, mp_context=context) as executor:
            executor.submit(work).result()
    elif way == "closed pool":
        with context.Pool(1) as pool:
            pool.apply(work)
            pool.close()
            pool.join()
    else:
        heard, told = os.pipe()
        with context.Pool(1) as pool:  # its end terminates the children
            pool.apply_async(stay, (told,))
            os.read(heard, 1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
