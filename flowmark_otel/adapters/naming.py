"""What the operation is called that a library retries: the function, or what the caller says."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Final

from opentelemetry import context as otel
from opentelemetry.context import Context

from flowmark_otel import names
from flowmark_otel.annotate.options import shown
from flowmark_otel.validate import clean_default

_METHODS: Final = frozenset(
    ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE")
)

NAME_KEY: Final = otel.create_key("flowmark-adapter-operation")
"""Context key of the name that the caller gives; its value is a string."""


@contextmanager
def operation_name(name: str) -> Iterator[None]:
    """Name the operations that are retried in a block: a context manager.

    It holds for calls that begin in the block, in this thread or task, whichever library retries
    them; not for what is retried within their tries.
    """
    token = otel.attach(otel.set_value(NAME_KEY, name))
    try:
        yield
    finally:
        otel.detach(token)


def given_name(context: Context) -> str | None:
    """The name that the caller gave, as it can be carried."""
    found = context.get(NAME_KEY)
    return None if found is None else clean_default(shown(found))[0]


def function_name(function: object) -> str:
    """Module and qualified name of what is called, at most 200 characters."""
    if type(function) is not FunctionType:
        while isinstance(function, functools.partial):
            function = function.func
    qualified = getattr(function, "__qualname__", None)
    if not isinstance(qualified, str):  # an object that can be called
        function = type(function)
        qualified = function.__qualname__
    module = getattr(function, "__module__", None)
    return joined_name(module if isinstance(module, str) else "", qualified)


def calling_function(*libraries: str) -> str:
    """Module and name of the function that runs, frames of ourselves and of ``libraries`` aside.

    For a loop that a library retries there is no function to name but the one that it stands in.
    """
    aside = (__name__.rpartition(".")[0], *libraries)
    frame = sys._getframe(1)  # noqa: SLF001 - the only way that costs no walk of the whole stack
    while True:
        module = frame.f_globals.get("__name__", "")
        if not any(module == each or module.startswith(f"{each}.") for each in aside):
            break
        if frame.f_back is None:
            return names.UNKNOWN_NAME
        frame = frame.f_back
    code = frame.f_code
    return joined_name(module, getattr(code, "co_qualname", code.co_name))


@functools.lru_cache(maxsize=1024)
def request_name(method: str, where: str) -> str:
    """Method, and host or template of a path: few names for many requests.

    A method that nobody knows is called HTTP, as the semantic conventions have it.
    """
    said = method.upper()
    return clean_default(f"{said if said in _METHODS else 'HTTP'} {where}".rstrip())[0]


@functools.lru_cache(maxsize=1024)
def connection_name(host: str) -> str:
    """What connecting to a host is called."""
    return clean_default(f"connect {host}")[0]


@functools.lru_cache(maxsize=1024)
def joined_name(module: str, qualified: str) -> str:
    """Two parts of a name, joined by a dot; at most 200 characters."""
    return clean_default(f"{module}.{qualified}" if module else qualified)[0]
