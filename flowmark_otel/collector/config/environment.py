"""``${env:NAME}`` in values, as the OpenTelemetry Collector expands it, but for what is not set.

- ``${env:NAME}`` and ``${NAME}``; ``${env:NAME:-default}``; the innermost first, and what a
  variable holds is expanded too. ``$$`` is a dollar sign.
- A value that is one reference is read as YAML: a number, a word, even a map. Where text is
  wanted the variable's own text stands. In the midst of a text its text is put in.
- Keys are never expanded.
- A variable that is not set and has no default is a fault. The Collector warns and goes on with
  nothing, which makes a key that is missing a 401 some time later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from flowmark_otel.collector.config import document
from flowmark_otel.collector.config.document import Document, Fault, Path
from flowmark_otel.collector.config.values import shown

MAX_EXPANSIONS: Final = 100
MAX_TEXT: Final = 64 << 10

_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SCHEME: Final = "env:"
_DEFAULT: Final = ":-"


class FromEnvironment(str):
    """Text that a variable gave, wholly or in part: no message may quote it."""

    __slots__ = ()


class _Bad(Exception):
    """A reference that cannot be expanded; its text says why and the mend."""


class _Reference(NamedTuple):
    """Where a reference stands in a text, brackets included."""

    start: int
    end: int

    def inside(self, text: str) -> str:
        """What stands between the brackets."""
        return text[self.start + 2 : self.end - 1]


def expand(found: Document, environ: Mapping[str, str]) -> Document:
    """The document with every value expanded; what cannot be is None and has its fault."""
    expander = _Expander(found, environ)
    value = expander.value(found.value, ())
    return Document(value, expander.lines, expander.faults, frozenset(expander.spoilt))


class _Expander:
    def __init__(self, found: Document, environ: Mapping[str, str]) -> None:
        self.lines = found.lines
        self.faults = list(found.faults)
        self.spoilt: set[Path] = set()
        self._environ = environ

    def value(self, value: object, path: Path) -> object:
        if isinstance(value, dict):
            return {key: self.value(each, (*path, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self.value(each, (*path, at)) for at, each in enumerate(value)]
        if not isinstance(value, str) or "$" not in value:
            return value
        try:
            return self._expanded(value, path)
        except _Bad as bad:
            self.faults.append(Fault(path, str(bad), self.lines.get(path, 0)))
            self.spoilt.add(path)
            return None

    def _expanded(self, text: str, path: Path) -> object:
        given = text
        whole = False
        for _ in range(MAX_EXPANSIONS):
            reference = _innermost(text)
            if reference is None:
                break
            whole = reference == (0, len(text))
            put = lookup(reference.inside(text), self._environ)
            text = text[: reference.start] + put + text[reference.end :]
            if len(text) > MAX_TEXT:
                msg = f"grows over {MAX_TEXT} characters when it is expanded"
                raise _Bad(msg)
        else:
            msg = f"has more than {MAX_EXPANSIONS} references in one another; write the value"
            raise _Bad(msg)
        text = text.replace("$$", "$")
        if text == given.replace("$$", "$"):
            return text
        return self._structured(text, path) if whole else FromEnvironment(text)

    def _structured(self, text: str, path: Path) -> object:
        """A list or map that a variable holds; scalars stay text, typed by who reads them."""
        if not text.lstrip().startswith(("{", "[", "-")) and "\n" not in text:
            return FromEnvironment(text)
        held = document.read(text)
        if held.faults or not isinstance(held.value, (dict, list)):
            return FromEnvironment(text)
        line = self.lines.get(path, 0)
        self.lines |= {(*path, *inner): line for inner in held.lines}
        return _covered(held.value)


def lookup(inside: str, environ: Mapping[str, str]) -> str:
    """The text of ``env:NAME:-default``; raises _Bad."""
    reference = inside if ":" in inside else f"{_SCHEME}{inside}"
    if not reference.startswith(_SCHEME):
        scheme = reference.partition(":")[0]
        if _NAME.fullmatch(scheme) and reference.startswith(f"{scheme}{_DEFAULT}"):
            msg = f"a default needs the scheme; write ${{env:{inside}}}"
            raise _Bad(msg)
        msg = f"knows no scheme {shown(scheme)}; write ${{env:NAME}}, or $${{ for itself"
        raise _Bad(msg)
    name, given, default = reference.removeprefix(_SCHEME).partition(_DEFAULT)
    if not _NAME.fullmatch(name):
        msg = (
            f"{shown(name)} is no name of a variable:"
            " letters, digits and _, no digit first; $$ stands for a dollar sign"
        )
        raise _Bad(msg)
    if name in environ:
        return environ[name]
    if given:
        return default
    msg = (
        f"the environment variable {name} is not set;"
        f" set it, or write a default, ${{{_SCHEME}{name}{_DEFAULT}…}}"
    )
    raise _Bad(msg)


def _innermost(text: str) -> _Reference | None:
    """The first reference that holds no other; ``$$`` before a bracket makes it plain text."""
    end = text.find("}")
    while end >= 0:
        start = text.rfind("${", 0, end)
        dollars = len(text[:start]) - len(text[:start].rstrip("$")) if start >= 0 else 0
        if start >= 0 and dollars % 2 == 0:
            return _Reference(start, end + 1)
        end = text.find("}", end + 1)
    return None


def _covered(value: object) -> object:
    if isinstance(value, dict):
        return {key: _covered(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_covered(each) for each in value]
    return FromEnvironment(value) if isinstance(value, str) else value
