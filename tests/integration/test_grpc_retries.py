"""gRPC's own retries, by a service config: what a client and a server are told of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

COUNTED: Final = "grpc-previous-rpc-attempts"
POLICY: Final = {
    "maxAttempts": 4,
    "initialBackoff": "0.01s",
    "maxBackoff": "0.01s",
    "backoffMultiplier": 1,
    "retryableStatusCodes": ["UNAVAILABLE"],
}


def test_no_fact_of_a_try_reaches_a_client() -> None:
    """E3: three sends are one call for a client, which nothing numbers; so none is recorded.

    The server is told the number, and nothing that says which sends belong together.
    """
    received: list[dict[str, str | bytes]] = []
    called: list[str] = []

    def answer(body: bytes, context: grpc.ServicerContext) -> bytes:
        received.append(dict(context.invocation_metadata()))
        if len(received) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        return body

    class Handlers(grpc.GenericRpcHandler):
        def service(self, _details: grpc.HandlerCallDetails) -> Any:
            return grpc.unary_unary_rpc_method_handler(answer)

    class Interceptor(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(
            self, continuation: Callable[..., Any], details: Any, request: Any
        ) -> Any:
            called.append(details.method)
            return continuation(details, request)

    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": POLICY}]})
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads, handlers=[Handlers()])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        plain = grpc.insecure_channel(address, options=[("grpc.service_config", config)])
        with grpc.intercept_channel(plain, Interceptor()) as channel:
            push: Any = channel.unary_unary("/crm.v1.Batches/Push")
            _, call = push.with_call(b"x", timeout=20)
            told = [*call.initial_metadata(), *call.trailing_metadata()]
        server.stop(None).wait(20)
    assert called == ["/crm.v1.Batches/Push"]
    assert COUNTED not in dict(told)
    assert [each.get(COUNTED) for each in received] == [None, "1", "2"]
    assert {key for each in received for key in each} <= {COUNTED, "user-agent"}
