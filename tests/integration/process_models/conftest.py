"""One backend for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.serving import Serving


@pytest.fixture(scope="package")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A backend with keys, for the whole folder."""
    with Serving(tmp_path_factory.mktemp("backend") / "s.db") as found:
        yield found
