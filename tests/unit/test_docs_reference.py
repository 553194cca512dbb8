"""The reference pages have every name, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import flowmark_otel
from flowmark_otel import adapters, proxy, testing
from tools import settings_page

API: Final = (Path(__file__).parents[2] / "docs" / "python-api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [flowmark_otel, testing, adapters, proxy])
def test_every_public_name_is_on_the_page(module: object) -> None:
    """A26: the page of the Python API names each public name once."""
    name = getattr(module, "__name__")  # noqa: B009 - of a module as an object
    told = re.findall(rf"^::: {re.escape(name)}\.(\w+)$", API, re.MULTILINE)
    assert sorted(told) == sorted(getattr(module, "__all__"))  # noqa: B009 - as above


def test_the_page_of_settings_is_written_from_them() -> None:
    """E6: ``docs/settings.md`` is what is declared; ``make docs`` writes it anew."""
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page()
