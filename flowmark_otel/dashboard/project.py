"""The project in an address: ``/p/acme/runs`` is the same page for everybody who may see acme.

An address without one is of whichever project its reader looks at, so it cannot be shared.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from starlette.requests import Request

PATH: Final = "/p/{project}"
"""Before the path of every page where there are projects to tell apart."""

_NAMED: Final = re.compile(r"/p/([^/?#]+)/")


def base(project: str) -> str:
    """What the addresses of a project begin with.

    Quoted twice: servers and proxies decode once before they route, and a name may hold a ``/``.
    """
    return f"/p/{quote(quote(project, safe=''))}"


def named(request: Request) -> str | None:
    """The project that an address names, None where it names none."""
    found = request.path_params.get("project")
    return None if found is None else unquote(found)


def of_path(path: str) -> str | None:
    """The same of an address as it is written."""
    found = _NAMED.match(path)
    return None if found is None else unquote(unquote(found[1]))


def here(request: Request) -> str:
    """The path and the query of a request, as they were asked."""
    path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    asked: bytes = request.scope["query_string"]
    return (path + (b"?" + asked if asked else b"")).decode("latin-1")
