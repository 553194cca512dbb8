"""A hook of MkDocs: what a page links to outside of ``docs/`` is named on the site, not linked.

In the source tree those links lead to files; the site has no such files.
"""

from __future__ import annotations

import re
from typing import Final

_OUTSIDE: Final = re.compile(r"\[(`?)([^\]`]+)\1\]\(\.\./[^)]+\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with the text of such links in their place."""
    return _OUTSIDE.sub(lambda found: f"`{found[2]}`", markdown)
