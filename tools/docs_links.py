"""Hooks of MkDocs: what readers of the source tree have and readers of the site do not.

Links to files outside of ``docs/`` lead to files in the tree; on the site what they lead to is
named. Docstrings name the promise that they keep, ``(A12)``; the site has no list of promises.
"""

from __future__ import annotations

import re
from typing import Final

_OUTSIDE: Final = re.compile(r"\[(`?)([^\]`]+)\1\]\(\.\./[^)]+\)")

_PROMISES: Final = re.compile(r" \((?:[A-E]\d{1,2}(?:, )?)+\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with the text of such links in their place."""
    return _OUTSIDE.sub(lambda found: f"`{found[2]}`", markdown)


def on_page_content(content: str, **_: object) -> str:
    """The page without the names of promises."""
    return _PROMISES.sub("", content)
