"""Reserving the ports that worker processes share."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from flowmark_otel.config import split_address
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.listen.serving import cannot_bind, listen, shown


def reserve(asked: dict[str, str], holding: ExitStack) -> dict[str, str]:
    """Hold the address of each name until ``holding`` closes; a port 0 becomes a free one.

    The sockets do not listen, so nobody is ever connected to them. Raises ConfigurationError naming
    every address that cannot be had.
    """
    found, faults = {}, []
    for name, address in asked.items():
        try:
            # Alone first: an address that is shared may be taken by a server that shares it too.
            listen(address).close()
            held = holding.enter_context(_held(address))
        except OSError as error:  # noqa: PERF203  two addresses
            faults.append(cannot_bind(name, address, error))
        else:
            found[name] = shown(address, held.getsockname()[1])
    if faults:
        raise ConfigurationError(faults)
    return found


def _held(address: str) -> socket.socket:
    host, port = split_address(address)
    kind = socket.SOCK_STREAM
    family, _, _, _, where = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)[0]
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(where)
    except OSError:
        made.close()
        raise
    return made
