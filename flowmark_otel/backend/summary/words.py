"""Pure: what a text search looks at, as words; the same words for both dialects.

A word is a row of letters and digits, case and compatible forms aside. Words are written in ASCII,
so that no database has an opinion of its own on what a letter is, and no syntax of a query reaches
one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

MOST_WORDS: Final = 10_000
"""Of one run so many words are kept; a run of more is not found by those beyond."""

MOST_ASKED: Final = 64
"""So many words of one question are looked for; what has more is refused."""

_LONGEST: Final = 1000  # bytes of a word; PostgreSQL takes 2,046
_WORD: Final = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """The words of a text, in order."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return [_ascii(word)[:_LONGEST] for word in _WORD.findall(plain)]


def body_of(texts: Iterable[str]) -> str:
    """What is kept of a run: the words of some texts, each text once."""
    found: list[str] = []
    for text in dict.fromkeys(texts):
        found += words_of(text)
        if len(found) >= MOST_WORDS:
            break
    return " ".join(found[:MOST_WORDS])


def phrases_of(asked: str) -> list[list[str]]:
    """What is looked for: one phrase for each part of the question between white space.

    The last word of a phrase may go on: ``batch-4`` finds ``customer-batch-42``.
    """
    return [found for part in asked.split() if (found := words_of(part))]


def matches(body: str, phrases: list[list[str]]) -> bool:
    """Whether all phrases occur in a body."""
    text = f" {body}"
    return all(f" {' '.join(phrase)}" in text for phrase in phrases)


def _ascii(word: str) -> str:
    return word if word.isascii() else "".join(c if c.isascii() else f"u{ord(c):x}" for c in word)
