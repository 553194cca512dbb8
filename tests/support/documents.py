"""The documents that people read, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENTS: Final = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"),
        ROOT / "SECURITY.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "collector").rglob("*.md"),
    )
    if "node_modules" not in path.parts
)
_BLOCK: Final = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of code: where it stands, its language, its text."""

    document: str
    language: str
    text: str

    @property
    def first(self) -> str:
        """Its first line, which tells it apart from others of the document."""
        return self.text.partition("\n")[0]

    @property
    def commands(self) -> list[str]:
        """The commands of a console block, one each."""
        return self.text.replace("\\\n", " ").strip().splitlines()


def blocks() -> Iterator[Block]:
    """Every block of every document, in order."""
    for document in DOCUMENTS:
        for _, language, text in _BLOCK.findall((ROOT / document).read_text(encoding="utf-8")):
            yield Block(document, language, dedent(text))


def fenceless(text: str) -> str:
    """A document without its blocks of code."""
    return _BLOCK.sub("", text)
