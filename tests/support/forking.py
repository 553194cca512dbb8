"""A program that forks with a request under way and events in its queue.

Arguments: endpoint and protocol. It prints a line when the first request is under way, and forks
when it is sent one; child and parent print their counts as JSON.
"""

from __future__ import annotations

import json
import os
import sys

from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Delivery
from tests.support.delivering import RESOURCE, attempts


def say(who: str, delivery: Delivery) -> None:
    """One line of JSON."""
    counts = {state: number for (state, _), number in delivery.counts().items()}
    found = json.dumps({"who": who, "counts": counts, "recorded": delivery.recorded()})
    os.write(1, f"{found}\n".encode())


def main(endpoint: str, protocol: str) -> None:
    """Record, fork, flush on both sides."""
    delivery = Delivery(ClientOptions(endpoint=endpoint, protocol=protocol))
    delivery.put(attempts(1, 2), RESOURCE)
    sys.stdin.readline()
    delivery.put(attempts(3, 4), RESOURCE)
    child = os.fork()
    if not child:
        say("new child", delivery)
        delivery.put(attempts(101, 101), RESOURCE)
        delivery.flush(20)
        say("child", delivery)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    say(f"child ended with {status}", delivery)
    delivery.flush(20)
    say("parent", delivery)
    delivery.shutdown(5)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
