"""The pytest fixture, for an application's own tests.

Import it in ``conftest.py``, which is all there is to set up::

    from flowmark_otel.testing.plugin import flowmark_backend

It is not offered as a ``pytest11`` entry point: that would import the package into every run of
pytest wherever it is installed, and installing it alone changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowmark_otel.testing.backend import InMemoryBackend
from flowmark_otel.testing.recording import recording

__all__ = ["flowmark_backend"]


@pytest.fixture
def flowmark_backend() -> Iterator[InMemoryBackend]:
    """Everything recorded in this test goes to this in-memory backend, with ``FLOWMARK_STRICT`` on.

    The test fails at its end if something was recorded that was not acknowledged, such as two
    different records of one attempt, and nobody was told by a flush.
    """
    with recording() as backend:
        yield backend
