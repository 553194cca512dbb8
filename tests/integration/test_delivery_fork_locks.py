"""A fork while another thread holds the locks of the HTTP client."""

from __future__ import annotations

import threading
from typing import Any

from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver.transports.http import HttpTransport
from flowmark_otel.wire.encode import encode_logs
from tests.support.answers import acknowledging, answering
from tests.support.delivering import RESOURCE, attempts


def test_a_child_takes_no_lock_of_its_parents_session() -> None:
    """A22: what a thread of the parent held at the fork is never waited for in the child."""
    body = encode_logs(attempts(1, 1), RESOURCE)
    with answering(acknowledging(), acknowledging()) as server:
        transport = HttpTransport(ClientOptions(endpoint=server.endpoint))
        assert transport.send(body, "application/x-protobuf", 10).status == 200
        manager: Any = transport._session.adapters["http://"]
        pools = manager.poolmanager.pools
        [pool] = pools._container.values()
        [kept] = [each for each in pool.pool.queue if each is not None]
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with pools.lock, pool.pool.mutex:
                held.set()
                release.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(30)
        child = threading.Thread(target=transport.after_fork, daemon=True)
        child.start()
        child.join(20)
        ended = not child.is_alive()
        release.set()
        holder.join()
        assert ended
        assert kept.sock.fileno() == -1
        assert transport.send(body, "application/x-protobuf", 10).status == 200
        transport.close()
