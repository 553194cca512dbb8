"""Parsers of settings: text, or a value of the type already; ValueError says the rule."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from flowmark_otel import names
from flowmark_otel.config.settings import Parse

_MAX_PORT: Final = 65535
_MAX_QUOTA: Final = 10**15
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off", ""})
_USUAL_PORTS: Final = {"http": "80", "https": "443"}
_ORIGIN: Final = re.compile(
    r"(?P<scheme>https?)://(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?",
    re.ASCII,
)


def text(value: object) -> str:
    """A nonblank string."""
    if not isinstance(value, str) or not value.strip():
        msg = f"must be text, found {value!r}"
        raise ValueError(msg)
    return value


def flag(value: object) -> bool:
    """A bool, or one of the usual words for it."""
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in _YES | _NO:
        msg = f"must be true or false, found {value!r}"
        raise ValueError(msg)
    return word in _YES


def whole(low: int, high: int) -> Parse[int]:
    """An integer within bounds, both included."""

    def parse(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = low - 1
        if isinstance(value, bool) or not low <= number <= high:
            msg = f"must be an integer from {low} to {high}, found {value!r}"
            raise ValueError(msg)
        return number

    return parse


def seconds(value: object) -> int:
    """A length of time such as ``90d``, ``12h``, ``30m`` or ``45s``, in seconds, above zero."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", str(value), re.ASCII)
    if found is None or int(found[1]) == 0:
        msg = f"must be a length of time such as 90d, 12h or 30m, found {value!r}"
        raise ValueError(msg)
    return int(found[1]) * _SECONDS[found[2]]


def quota(value: object) -> int | None:
    """A whole number from 0, or ``unlimited``: None."""
    if value == "unlimited":
        return None
    try:
        return whole(0, _MAX_QUOTA)(value)
    except ValueError as error:
        msg = f"must be a whole number from 0, or unlimited; found {value!r}"
        raise ValueError(msg) from error


def file(value: object) -> Path:
    """A file that exists."""
    path = Path(str(value))
    if not path.is_file():
        msg = f"names no file: {path}"
        raise ValueError(msg)
    return path


def address(value: object) -> str:
    """``HOST:PORT``, the port from 0 (any free one) to 65535, an IPv6 host in brackets."""
    split_address(str(value))
    return str(value)


def capabilities(value: object) -> tuple[str, ...]:
    """Capabilities, as a sequence or as a comma list."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        msg = f"must be a list, found {value!r}"
        raise ValueError(msg)  # noqa: TRY004 - parsers raise ValueError alone
    found = tuple(str(part).strip() for part in parts)
    for name in found:
        if name != names.CAPABILITY:
            msg = f"can leave out {names.CAPABILITY} only, found {name!r}"
            raise ValueError(msg)
    return found


def trace_template(value: object) -> str:
    """An address with ``{trace_id}``, and ``{span_id}`` if wanted, in it."""
    template = text(value)
    unknown = set(re.findall(r"{([^{}]*)}", template)) - {"trace_id", "span_id"}
    if not template.startswith(("http://", "https://")) or "{trace_id}" not in template or unknown:
        msg = f"must be an http address with {{trace_id}} and at most {{span_id}}, found {value!r}"
        raise ValueError(msg)
    return template


def split_address(value: str) -> tuple[str, int]:
    """Host (without brackets) and port of an address; ValueError says the rule."""
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not (colon and bare and re.fullmatch(r"\d{1,5}", port, re.ASCII)) or (
        ":" in bare and not bracketed
    ):
        msg = f"must be HOST:PORT, found {value!r}"
        raise ValueError(msg)
    if int(port) > _MAX_PORT:
        msg = f"must have a port from 0 to {_MAX_PORT}, found {value!r}"
        raise ValueError(msg)
    return bare, int(port)


def is_loopback(value: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    host, _ = split_address(value)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# -- of the client ----------------------------------------------------------------------------
def web_address(value: object) -> str:
    """An ``http`` or ``https`` address, for gRPC too, where the scheme says whether TLS is used."""
    found = text(value).strip().rstrip("/")
    parts = urlsplit(found)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        msg = f"must be an address such as http://127.0.0.1:4318, found {found!r}"
        raise ValueError(msg)
    if "@" in parts.netloc:
        msg = "must not hold a user or password; set the key, or headers"
        raise ValueError(msg)
    split_port = parts.port  # urlsplit checks it only when it is read
    if split_port == 0:
        msg = f"must have a port from 1 to {_MAX_PORT}, found {found!r}"
        raise ValueError(msg)
    return found


def web_origin(value: object) -> str:
    """The origin of web pages, as browsers write it: scheme, host, a port that is not usual."""
    found = str(value).strip().lower()
    match = _ORIGIN.fullmatch(found)
    if match is None or int(match["port"] or 1) not in range(1, _MAX_PORT + 1):
        msg = f"must be an origin without a path, as https://shop.example:8443, found {value!r}"
        raise ValueError(msg)
    usual = _USUAL_PORTS[match["scheme"]]
    return found.removesuffix(f":{usual}") if match["port"] == usual else found


def url_prefix(value: object) -> str:
    """The path that something is served below, ``/telemetry``; empty for none."""
    found = str(value).strip().rstrip("/")
    if not re.fullmatch(r"(?:/[A-Za-z0-9._~-]+)*", found):
        msg = f"must be a path such as /telemetry, found {value!r}"
        raise ValueError(msg)
    return found


def secret(value: object) -> str:
    """A key as a header can hold it; what is wrong with one is said without showing it."""
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value):
        msg = "must be a key: characters without spaces"
        raise ValueError(msg)
    return value


def one_of(*allowed: str) -> Parse[str]:
    """One of a closed set of words."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            msg = f"must be {', '.join(allowed[:-1])} or {allowed[-1]}, found {value!r}"
            raise ValueError(msg)
        return value

    return parse


def words(value: object) -> tuple[str, ...]:
    """Words, as a sequence or as a comma list; blank ones are left out."""
    parts: object = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple, set, frozenset)) or not all(
        isinstance(part, str) for part in parts
    ):
        msg = f"must be a comma list, found {value!r}"
        raise ValueError(msg)
    return tuple(part.strip() for part in parts if part.strip())


def signals(value: object) -> tuple[str, ...]:
    """Names of signals, ``safe`` among them or not, or ``none`` alone."""
    found = words(value)
    known = (names.SIGNALS_SAFE, *names.SIGNAL_NAMES)
    if found == (names.SIGNALS_NONE,):
        return found
    unknown = next((word for word in found if word not in known), None)
    if unknown is not None:
        msg = f"can be none alone, or any of {', '.join(known)}, found {unknown!r}"
        raise ValueError(msg)
    return found


def words_of(*allowed: str) -> Parse[frozenset[str]]:
    """Any of a closed set of words, as a sequence or as a comma list."""

    def parse(value: object) -> frozenset[str]:
        found = frozenset(words(value))
        unknown = sorted(found.difference(allowed))
        if unknown:
            msg = f"can hold {' and '.join(allowed)} only, found {unknown[0]!r}"
            raise ValueError(msg)
        return found

    return parse


def headers(value: object) -> tuple[tuple[str, str], ...]:
    """Headers, as a mapping or as OpenTelemetry writes them: ``name=value,…``, values escaped.

    Pairs of name, in lower case as gRPC wants them, and value.
    """
    found = dict(value) if isinstance(value, Mapping) else dict(_header_pairs(text(value)))
    for name, content in found.items():
        if not isinstance(name, str) or not isinstance(content, str):
            msg = "must be names and values of text"
            raise ValueError(msg)  # noqa: TRY004 - parsers raise ValueError alone
        # What is set is not shown: it is often a credential.
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not re.fullmatch(
            r"[\t -~]*", content
        ):
            msg = f"the header {name[:40]!r} has characters that no header can hold"
            raise ValueError(msg)
    return tuple((name.lower(), content) for name, content in found.items())


def _header_pairs(value: str) -> Iterable[tuple[str, str]]:
    for part in value.split(","):
        name, equals, content = part.partition("=")
        if not equals and not part.strip():
            continue
        if not equals:
            msg = "must be name=value, joined by commas"
            raise ValueError(msg)
        yield unquote(name.strip()), unquote(content.strip())


def folder(value: object) -> Path:
    """A folder, which need not exist yet; ``~`` is the home of the user."""
    if not isinstance(value, (str, Path)) or not str(value).strip():
        msg = f"must name a folder, found {value!r}"
        raise ValueError(msg)
    if "\0" in str(value):
        msg = "must name a folder, found a NUL character"
        raise ValueError(msg)
    path = Path(value).expanduser()
    os.fsencode(path)
    if path.exists() and not path.is_dir():
        msg = f"names a file, not a folder: {path}"
        raise ValueError(msg)
    return path
