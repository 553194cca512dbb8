"""What can be told to a proxy in Python, beside its environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from typing_extensions import TypedDict

from flowmark_otel.config import ProxyOptions, resolve


class ProxySettings(TypedDict, total=False):
    """The settings of ``config.ProxyOptions``; what is not given comes from the environment."""

    endpoint: str
    api_key: str
    certificate: str | Path
    workflows: Iterable[str]
    prefix_path: str
    timeout: int
    max_request_bytes: int
    max_in_flight: int


def options_from(settings: ProxySettings) -> ProxyOptions:
    """Arguments, then ``FLOWMARK_PROXY_*``, then defaults; raises ConfigurationError."""
    return resolve(ProxyOptions, dict(settings), os.environ)
