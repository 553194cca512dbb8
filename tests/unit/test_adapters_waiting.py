"""Adapters wait for the library that they are for, and go when they are switched off."""

from __future__ import annotations

import importlib
import itertools
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import wrapt

from flowmark_otel.adapters.instrumentor import Adapter, Patches

SERIAL = itertools.count()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that nobody has imported: hooks of old releases take no name that was unloaded."""
    name = f"a_library_that_retries_{next(SERIAL)}"
    (tmp_path / f"{name}.py").write_text("class Loop:\n    def step(self):\n        return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


class Waiting(Adapter):
    """An adapter that counts steps."""

    requirement = "pytest >= 1"
    steps: list[str]

    def patch(self, patches: Patches) -> None:
        """Wrap the step, or fail where there is none."""
        patches.wrap(importlib.import_module(str(self.module)).Loop, "step", self._step)

    def _step(self, original: Any) -> Any:
        def step(loop: Any) -> Any:
            if self.is_on:
                self.steps.append("step")
            return original(loop)

        return step


@pytest.fixture
def adapter(library: str) -> Iterator[Waiting]:
    """The adapter, switched off at the end."""

    class OfLibrary(Waiting):
        module = library

    found = OfLibrary()
    found.steps = []
    yield found
    found.uninstrument()


def load(library: str) -> ModuleType:
    """The application imports the library."""
    return importlib.import_module(library)


def test_it_waits_for_the_import(library: str, adapter: Waiting) -> None:
    """D2: the library is loaded by the application alone, and changed then."""
    adapter.instrument()
    assert library not in sys.modules
    assert load(library).Loop().step() == 1
    assert adapter.steps == ["step"]


def test_what_is_loaded_already_is_changed_at_once(library: str, adapter: Waiting) -> None:
    """E3: an adapter that is switched on late records from then on."""
    loop = load(library).Loop()
    adapter.instrument()
    loop.step()
    assert adapter.steps == ["step"]


def test_switched_off_before_the_import(library: str, adapter: Waiting) -> None:
    """Issue 8: what was switched off changes nothing any more."""
    adapter.instrument()
    adapter.uninstrument()
    load(library).Loop().step()
    assert adapter.steps == []
    adapter.instrument()
    load(library).Loop().step()
    assert adapter.steps == ["step"]


def test_what_another_has_wrapped_stays_and_records_nothing(library: str, adapter: Waiting) -> None:
    """Issue 8: a wrapper under somebody else's cannot be taken away; it only passes on."""
    adapter.instrument()
    kind = load(library).Loop

    def passing(wrapped: Any, _: object, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(kind, "step", passing)
    assert kind().step() == 1
    adapter.uninstrument()
    assert kind().step() == 1
    assert adapter.steps == ["step"]


def test_what_another_wrapped_before_is_called_bound(library: str, adapter: Waiting) -> None:
    """Issue 8: another instrumentation's wrapper gets its object as if we were not there."""
    kind, seen = load(library).Loop, []

    def passing(wrapped: Any, instance: object, args: Any, kwargs: Any) -> Any:
        seen.append((instance, args))
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(kind, "step", passing)
    adapter.instrument()
    loop = kind()
    assert loop.step() == 1
    assert seen == [(loop, ())]
    assert adapter.steps == ["step"]


def test_a_release_that_nobody_knows(
    library: str,
    adapter: Waiting,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Issue 8: it is imported as ever; that its tries are not recorded is said."""
    (tmp_path / f"{library}.py").write_text("answer = 42\n")
    adapter.instrument()
    with caplog.at_level(logging.WARNING, "flowmark_otel"):
        assert load(library).answer == 42
    assert "its tries are not recorded" in caplog.text
    assert not adapter.is_on
