"""What several files of these tests start, built once for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import stock_collector


@pytest.fixture(scope="session")
def otelcol(request: pytest.FixtureRequest) -> Path:
    """The stock Collector, built at first use; for tests that need Go."""
    return stock_collector.build(request.config.cache.mkdir("otelcol"))
