"""What all adapters are: instrumentors that change methods of a library, and change them back."""

from __future__ import annotations

import functools
import inspect
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any, ClassVar

from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]  # unchecked
    BaseInstrumentor,
)
from wrapt import register_post_import_hook

from flowmark_otel.config.client import configured

_log = logging.getLogger("flowmark_otel")


class Patches:
    """Methods that were put in the place of a library's own."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, object, object]] = []

    def wrap(self, owner: object, name: str, wrapped: Callable[[Any], object]) -> None:
        """Replace what ``owner`` itself has under ``name`` by what is made of it.

        What it only inherits is left alone: that is wrapped where it is.
        """
        original = vars(owner).get(name)
        if original is None:
            return
        replacement = wrapped(_method(original) if isinstance(owner, type) else original)
        setattr(owner, name, replacement)
        self._made.append((owner, name, original, replacement))

    def undo(self) -> None:
        """Put all back, but what somebody else has wrapped since: that calls on."""
        for owner, name, original, replacement in reversed(self._made):
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        self._made.clear()


def _method(original: Any) -> Any:
    """What is called with its object as first argument.

    Another instrumentation's wrapper wants to be bound to it.
    """
    if type(original) is FunctionType or not hasattr(original, "__get__"):
        return original
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def async_method(owner: Any, *args: Any, **kwargs: Any) -> Any:
            return await original.__get__(owner, type(owner))(*args, **kwargs)

        return async_method

    @functools.wraps(original)
    def method(owner: Any, *args: Any, **kwargs: Any) -> Any:
        return original.__get__(owner, type(owner))(*args, **kwargs)

    return method


class Adapter(BaseInstrumentor):  # type: ignore[misc]  # as above
    """An instrumentor for one retry library.

    ``requirement``: the library and its oldest release. Where the library is missing or older,
    nothing is done.
    """

    requirement: ClassVar[str]
    module: ClassVar[str | None] = None
    """What the application imports where it uses the library, which may take seconds to load: it
    is changed when that is done, and never loaded for the adapter's sake. None: changed at once."""

    _patches: Patches | None = None

    @classmethod
    def when_configured(cls) -> Adapter | Idle:
        """What the entry point makes: idle unless the environment asks for anything to be sent."""
        return cls() if configured(os.environ) else Idle()

    @property
    def is_on(self) -> bool:
        """Whether it records: what somebody else has wrapped stays, and must record no more."""
        return self._patches is not None

    @abstractmethod
    def patch(self, patches: Patches) -> None:
        """Wrap the library's methods; ModuleNotFoundError if it is not there."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """The library and its oldest release."""
        return (self.requirement,)

    def _instrument(self, **kwargs: object) -> None:
        del kwargs  # there is nothing to choose
        conflict = self._check_dependency_conflicts()  # the caller may not have asked
        if conflict:
            _log.debug("%s: nothing to record: %s", type(self).__name__, conflict)
            return
        patches = self._patches = Patches()
        if self.module is None:
            self._patch(patches)
        else:
            register_post_import_hook(lambda _: self._patch(patches), self.module)

    def _patch(self, patches: Patches) -> None:
        """The library is there; it may be long after, when all was switched off again."""
        if self._patches is not patches:
            return
        try:
            self.patch(patches)
        except Exception as error:  # noqa: BLE001 - a release of which nobody knows yet
            self._patches = None
            patches.undo()
            _log.warning("%s: its tries are not recorded: %s", self.requirement, error)

    def _uninstrument(self, **kwargs: object) -> None:
        del kwargs
        patches, self._patches = self._patches, None
        if patches is not None:
            patches.undo()


class Idle(BaseInstrumentor):  # type: ignore[misc]  # as above
    """An instrumentor that does nothing: installing the package alone changes nothing (D2)."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """None."""
        return ()

    def instrument(self, **kwargs: object) -> None:
        """Do nothing, any number of times."""

    def _uninstrument(self, **kwargs: object) -> None:
        """Nothing was done."""
