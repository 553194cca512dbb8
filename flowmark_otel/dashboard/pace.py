"""How often wrong keys may be tried at the sign-in: by one address, and by all together.

Counted in this process alone: keys cannot be guessed anyhow, so this only keeps somebody who tries
from occupying the store; with several workers each lets as many through. Behind a proxy all
visitors have its address.
"""

from __future__ import annotations

import ipaddress
import math
import threading
from typing import Final, NamedTuple

from flowmark_otel.clock import Clock

OF_ADDRESS: Final = 10
"""Wrong keys of one address (IPv6: of one /64) at once, and in a minute."""

OF_ALL: Final = 300
"""Wrong keys of all addresses at once, and in a minute."""

MOST_ADDRESSES: Final = 10_000

_MINUTE: Final = 60.0
_IPV6_PREFIX: Final = 64


class _Left(NamedTuple):
    """Tries that were left at a time (monotonic seconds); they come back evenly in a minute."""

    tries: float
    at: float

    def now(self, now: float, most: int) -> float:
        return min(self.tries + (now - self.at) * most / _MINUTE, float(most))


class Pace:
    """Owns its counters; may be used from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._all = _Left(OF_ALL, clock.monotonic())
        self._addresses: dict[str, _Left] = {}

    def wait(self, address: str) -> int:
        """Seconds until a key may be tried from an address; 0 where it may be now."""
        now = self._clock.monotonic()
        with self._lock:
            own = self._addresses.get(_network(address))
            waits = [_seconds(self._all.now(now, OF_ALL), OF_ALL)]
            if own is not None:
                waits.append(_seconds(own.now(now, OF_ADDRESS), OF_ADDRESS))
        return max(waits)

    def wrong(self, address: str) -> None:
        """Count a wrong key."""
        now, network = self._clock.monotonic(), _network(address)
        with self._lock:
            self._all = _Left(self._all.now(now, OF_ALL) - 1, now)
            own = self._addresses.pop(network, _Left(OF_ADDRESS, now))
            if len(self._addresses) >= MOST_ADDRESSES:
                # The one that tried longest ago: its tries are the most likely to be all back.
                del self._addresses[next(iter(self._addresses))]
            self._addresses[network] = _Left(own.now(now, OF_ADDRESS) - 1, now)


def _seconds(left: float, most: int) -> int:
    return 0 if left >= 1 else max(1, math.ceil((1 - left) * _MINUTE / most))


def _network(address: str) -> str:
    """What one visitor has at least: an IPv4 address, or a /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
    return str(found)
