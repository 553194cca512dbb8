"""The text of a configuration file as plain values; bounded, and every fault found at once.

Scalars are read by the core schema of YAML 1.2, as the Collector's reader does: ``no`` and ``on``
are words, not booleans. Aliases and merge keys work; what they make in all is bounded, so that a
few lines cannot become a gigabyte. Tags that would construct anything else are faults.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from flowmark_otel.collector.config.values import shown

MAX_BYTES: Final = 256 << 10
MAX_VALUES: Final = 20_000
"""Scalars, lists and maps, aliases written out."""
MAX_DEPTH: Final = 32

Path: TypeAlias = tuple[str | int, ...]

_TAG: Final = "tag:yaml.org,2002:"
_NULL: Final = re.compile(r"~|null|Null|NULL|")
_TRUE: Final = re.compile(r"true|True|TRUE")
_FALSE: Final = re.compile(r"false|False|FALSE")
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)
_OTHER_BASE: Final = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT: Final = re.compile(
    r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,4})?", re.ASCII
)
_PLAIN: Final = "plain"
_SCALARS: Final = frozenset(
    {_PLAIN, *(f"{_TAG}{each}" for each in ("null", "bool", "int", "float"))}
)
_MERGE: Final = "<<"


class Fault(NamedTuple):
    """Something wrong at a place of the file; ``line`` counts from 1, 0 where there is none."""

    path: Path
    says: str
    line: int = 0

    def __str__(self) -> str:
        """``exporters.flowmark.endpoint: what, and the mend (line 12)``."""
        where = ".".join(str(part) for part in self.path)
        line = f" (line {self.line})" if self.line else ""
        return _printable(f"{where}: {self.says}{line}" if where else f"{self.says}{line}")


class Document(NamedTuple):
    """Values of dicts with text keys, lists and scalars; the line that each path begins at.

    ``spoilt``: paths whose value could not be had, so that nothing more can be said of it.
    """

    value: object
    lines: dict[Path, int]
    faults: list[Fault]
    spoilt: frozenset[Path] = frozenset()


def read(text: str) -> Document:
    """The one document of a text. Nothing is raised: faults are listed, what they spoil is None."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        return _spoilt(f"the file has {size} bytes; at most {MAX_BYTES} are read")
    try:
        root = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        says = ", ".join(str(each) for each in (error.context, error.problem) if each)
        return _spoilt(f"is no YAML: {says}", mark.line + 1 if mark is not None else 0)
    except yaml.YAMLError as error:
        what = getattr(error, "character", None)
        named = f": the character {what!a} cannot stand in it" if what is not None else ""
        return _spoilt(f"is no YAML{named}")
    except RecursionError:
        return _spoilt(f"is nested deeper than {MAX_DEPTH} levels; write it flatter")
    except (ValueError, OverflowError):  # what chr makes of such an escape, in the scanner
        return _spoilt("is no YAML: it has an escape that names no character")
    reader = _Reader()
    value = None if root is None else reader.read(root)
    return Document(value, reader.lines, reader.faults)


def scalar(text: str) -> object:
    """What a plain scalar stands for: None, a bool, an int, a float or the text itself."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


class _Loader(yaml.SafeLoader):
    """Leaves to ``scalar`` what a plain scalar is."""

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:  # noqa: ANN401  untyped
        """The tag of a node that has none."""
        if kind is ScalarNode and implicit[0]:
            return _PLAIN
        return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]


class _TooMuch(Exception):
    """The bound of values is reached: nothing more is read."""


class _Reader:
    """From nodes to values; owns what was found on the way."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.faults: list[Fault] = []
        self._values = 0
        self._open: set[int] = set()

    def read(self, root: Node) -> object:
        """The value of a document's root."""
        try:
            return self._value(root, ())
        except _TooMuch:
            says = f"holds more than {MAX_VALUES} values, aliases written out; write fewer"
            self.faults.append(Fault((), says))
            return None

    def _value(self, node: Node, path: Path) -> object:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _TooMuch
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self._fault(node, path, "is an alias of what it stands in; write it out")
            return None
        if len(self._open) >= MAX_DEPTH:
            self._fault(node, path, f"is nested deeper than {MAX_DEPTH} levels; write it flatter")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            self._check_tag(node, path, "seq")
            return [self._value(each, (*path, at)) for at, each in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, object]:
        self._check_tag(node, path, "map")
        found: dict[str, object] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._fault(key_node, path, "has a key that is no text; write a name")
                continue
            key = str(key_node.value)
            where = (*path, key)
            if key == _MERGE and key_node.tag == _PLAIN:
                merged.append(value_node)
            elif key in found:
                self._fault(key_node, where, "stands twice; leave one of them")
            else:
                self.lines[where] = key_node.start_mark.line + 1
                found[key] = self._value(value_node, where)
        for each in merged:
            found = {**self._merged(each, path), **found}
        return found

    def _merged(self, node: Node, path: Path) -> dict[str, object]:
        """What ``<<`` brings: a map, or a list of maps, of which the first that has a key wins."""
        several = isinstance(node, SequenceNode)
        found: dict[str, object] = {}
        for each in node.value if several else [node]:
            value = self._value(each, path)
            if isinstance(value, dict):
                found = {**value, **found}
            else:
                self._fault(each, (*path, _MERGE), "merges what is no map; name the anchor of one")
        return found

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        if node.tag in _SCALARS:
            return scalar(node.value)
        self._check_tag(node, path, "str")
        return str(node.value)

    def _check_tag(self, node: Node, path: Path, kind: str) -> None:
        """Only what a node is anyway may be said of it: any other tag would construct something."""
        if node.tag != f"{_TAG}{kind}":
            self._fault(node, path, f"has the tag {shown(node.tag)}; leave it out")

    def _fault(self, node: Node, path: Path, says: str) -> None:
        self.faults.append(Fault(path, says, node.start_mark.line + 1))


def _printable(text: str) -> str:
    """Nothing of a file ends a line, moves a terminal or cannot be encoded."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def _spoilt(says: str, line: int = 0) -> Document:
    return Document(None, {}, [Fault((), says, line)])
