"""What looks like a secret: names that say so, and values that show it (reliability, "secrets").

Pure. Every replacement is idempotent and makes no text longer, so that a receiver which redacts
again reads what the sender sent, and what fitted its limit still does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from flowmark_otel import names

_WORDS: Final = (
    r"passw(?:or)?d|passphrase|secret|api[_.-]?key|access[_.-]?key|private[_.-]?key"
    r"|account[_.-]?key|credential|authorization|cookie|session[_.-]?id"
)

_NAMED: Final = re.compile(rf"{_WORDS}|token", re.IGNORECASE)

_SECRET_VALUE: Final = re.compile(
    r"""
      eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*       # JSON web tokens
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                                 # AWS access key ids
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----(?:.*?-----END\ [A-Z ]*PRIVATE\ KEY-----|.*)
    | \bfmk_[A-Za-z0-9-]+_[A-Za-z0-9_-]{8,}                         # our own keys
    | \b[Bb]earer\ +[A-Za-z0-9._~+/=-]{8,}
    """,
    re.VERBOSE | re.DOTALL,
)

# A count of tokens is none: "max_tokens=4096". Repeats are bounded, so no text costs more than
# its length times a constant.
_ASSIGNED: Final = re.compile(
    rf"""
      (?P<user> ://[^/\s:@]{{0,64}}: ) (?P<passed> [^/\s@]+ ) (?=@)          # user:password@host
    | (?P<header> \b(?: (?:proxy-)?authorization | (?:set-)?cookie )\ {{0,4}}:\ {{0,4}} )
      (?P<line> [^\r\n]+ )                                                 # a header to its end
    | (?P<name>
        (?: (?:{_WORDS}|token(?!s)|signature)[\w.-]{{0,32}} | \b(?:pwd|sig) )
        (?: \\{{0,3}}["']?\ {{0,4}} (?:=|%3d)\ {{0,4}} | \\{{0,3}}["']\ {{0,4}}:\ {{0,4}} )
      | (?: passw(?:or)?d | passphrase | api[_.-]?key )\ {{0,4}}:\ {{0,4}}
      )
      (?P<value> (?: \\{{0,3}} (?: "[^"]*"? | '[^']*'? ) )? [^\s&;,"']* )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ASSIGNS: Final = re.compile(r"[=:]|%3[dD]")

_SHORTEST_SECRET: Final = 12
_STARS: Final = "***"

_NAMES_OF_THE_SERVICE: Final = "service."
"""Its name, version and instance id are names and ids, which are never changed."""


def is_secret_name(key: str, start: int = 0) -> bool:
    """Whether a key says, from ``start`` on, that its value is a secret."""
    return _NAMED.search(key, start) is not None


def redact_text(text: str) -> str:
    """``text`` with the secrets that the built-in detectors find replaced; never longer."""
    if len(text) >= _SHORTEST_SECRET:
        text = _SECRET_VALUE.sub(names.REDACTED, text)
    return _ASSIGNED.sub(_without_value, text) if _ASSIGNS.search(text) else text


def redact_resource(attributes: Mapping[str, object]) -> Mapping[str, object]:
    """Attributes of a resource as they may leave the process; the mapping itself if nothing is.

    They are in no digest: hops change them.
    """
    found = {
        key: value
        for key, given in attributes.items()
        if (value := _redacted(key, given)) is not given
    }
    return {**attributes, **found} if found else attributes


def _redacted(key: str, value: object) -> object:
    """A value of any shape; itself where nothing in it is secret. Numbers and bools are none."""
    if key.startswith(_NAMES_OF_THE_SERVICE):
        return value
    if isinstance(value, str):
        text = names.REDACTED if is_secret_name(key) else redact_text(value)
        return value if text == value else text
    if isinstance(value, bytes):
        return names.REDACTED if is_secret_name(key) else value
    if isinstance(value, Mapping):
        inner = {one: _redacted(f"{key}.{one}", held) for one, held in value.items()}
        return inner if any(inner[one] is not value[one] for one in value) else value
    if isinstance(value, Sequence):
        items = [_redacted(key, one) for one in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def _without_value(found: re.Match[str]) -> str:
    for before, held in (("user", "passed"), ("header", "line"), ("name", "value")):
        if found[before] is not None:
            return found[before] + _mark(len(found[held]))
    raise AssertionError(found.re.pattern)  # one of the three always takes part


def _mark(size: int) -> str:
    """What stands for a value of that length; the same again for what stands there."""
    return names.REDACTED if size >= len(names.REDACTED) else _STARS[:size]
