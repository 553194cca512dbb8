"""Telemetry as visible text: what has no shape, or would reorder a line, is written out.

Escaping is the template engine's; this is about characters that survive it (fault row 20).
"""

from __future__ import annotations

import unicodedata
from typing import Final

# Controls (Cc), formats with all bidirectional ones (Cf), line and paragraph separators, lone
# surrogates (which no page could be encoded with).
_HIDDEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})

LONGEST: Final = 2_000
"""Code points of one value that a page shows; the JSON has all of them."""


def visible(text: str) -> str:
    """``text`` with each character that cannot be seen written as ``⟨U+202E⟩``, cut at LONGEST."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… ({len(text) - LONGEST:,} more characters)"
    if text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(character):04X}⟩" if unicodedata.category(character) in _HIDDEN else character
        for character in text
    )
