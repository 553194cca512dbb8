"""What every request of a client carries, whatever its protocol."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from flowmark_otel.config.client import ClientOptions


@cache
def installed_version() -> str:
    """The version of this package; ``0`` in a tree that nobody installed."""
    try:
        return version("flowmark-otel")
    except PackageNotFoundError:
        return "0"


USER_AGENT: Final = f"flowmark-otel/{installed_version()}"


def sent_headers(options: ClientOptions) -> dict[str, str]:
    """Headers in lower case: the configured ones, and the key where there is one."""
    found = {"user-agent": USER_AGENT}
    found.update((name.lower(), value) for name, value in options.headers)
    if options.api_key:
        found["authorization"] = f"Bearer {options.api_key}"
    return found
