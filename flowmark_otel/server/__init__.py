"""The composition root of the backend, and the processes it runs in (D5)."""

from flowmark_otel.server.backend import FIRST_PROJECT, Server, Started
from flowmark_otel.server.running import run

__all__ = ["FIRST_PROJECT", "Server", "Started", "run"]
