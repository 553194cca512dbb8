"""A program that records one run and ends in the way its argument names."""

from __future__ import annotations

import os
import signal
import sys

from tests.support.process_apps.record import record

if sys.argv[1] == "SIGTERM handled":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
record("script")
match sys.argv[1]:
    case "its end":
        pass
    case "sys.exit":
        sys.exit(3)
    case "exception":
        raise LookupError
    case "os._exit":
        os._exit(3)
    case "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    case "SIGINT":
        os.kill(os.getpid(), signal.SIGINT)
    case _:
        os.kill(os.getpid(), signal.SIGTERM)
