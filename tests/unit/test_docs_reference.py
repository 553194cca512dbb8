"""The reference pages have every name, and no other."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Final

import pytest

import flowmark_otel
from flowmark_otel import adapters, proxy, testing
from tools import settings_page

API: Final = (Path(__file__).parents[2] / "docs" / "python-api.md").read_text(encoding="utf-8")
NAMED: Final = re.findall(r"^::: ([\w.]+)\.(\w+)$", API, re.MULTILINE)
PUBLIC: Final = [
    (module.__name__, name)
    for module in (flowmark_otel, testing, adapters, proxy)
    for name in module.__all__
]


@pytest.mark.parametrize("module", [flowmark_otel, testing, adapters, proxy])
def test_every_public_name_is_on_the_page(module: ModuleType) -> None:
    """A26: the page of the Python API names each public name once."""
    told = [resolve_name(f"{path}:{name}") for path, name in NAMED]
    for name in module.__all__:
        assert [each for each in told if each is getattr(module, name)] != [], name
    assert len({id(each) for each in told}) == len(told) == len(PUBLIC)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_name_on_the_page_is_no_module(path: str, name: str) -> None:
    """A26: a module that has the same name, here or where it is defined, is not shown instead."""
    home = resolve_name(f"{path}:{name}").__module__
    packages = {path, home.rpartition(".")[0]} if path != home else set()
    assert [each for each in packages if find_spec(f"{each}.{name}") is not None] == []


def test_the_page_of_settings_is_written_from_them() -> None:
    """E6: ``docs/settings.md`` is what is declared; ``make docs`` writes it anew."""
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page()
