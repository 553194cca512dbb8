"""Recovery that the application decides on itself, recorded as attempts and as a retried run.

Two services on loopback fail when they are asked at a bad moment: a CRM, which is down the first
time, and a booking provider, which loses its third reservation. Nothing here retries by itself:
the program does, in plain code, and says which try of what each one was. Start a backend, then run
this file; README.md has the commands.
"""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import flowmark_otel as flowmark
from flowmark_otel import Attempt, Failure


@contextmanager
def service(*fails_on: int) -> Iterator[str]:
    """An HTTP service on loopback that answers 503 to the requests numbered here, from 1."""
    asked = 0

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal asked
            asked += 1
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(503 if asked in fails_on else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def post(url: str, text: str) -> None:
    """Send something; raises urllib.error.HTTPError if it was not taken."""
    with urllib.request.urlopen(url, data=text.encode(), timeout=10):  # noqa: S310 - loopback
        pass


def push(url: str, customers: list[str]) -> int:
    """Push customers to the CRM; returns how many it took."""
    post(url, ",".join(customers))
    return len(customers)


def manual_recovery(customers: list[str]) -> str:
    """The operation is ended by hand, where the application knows how it went."""
    flow = flowmark.workflow("crm.sync")
    with service(1) as crm:
        first = flow.operation("push-to-crm", attempt=Attempt("customer-batch-42", 1), limit=2)
        try:
            imported = push(crm, customers)
        except urllib.error.HTTPError:
            first.fail(code="CRM_UNAVAILABLE", retryable=True)
            second = flow.operation("push-to-crm", attempt=Attempt("customer-batch-42", 2), limit=2)
            imported = push(crm, customers)
            second.complete()
        else:
            first.complete()
    flow.done(outcome="complete", result={"imported": imported})
    return flow.run_id


def crm_failure(error: Exception) -> Failure | None:
    """How the application names what can go wrong with the CRM."""
    if isinstance(error, urllib.error.HTTPError):
        return Failure("CRM_UNAVAILABLE", retryable=error.code >= 500)  # noqa: PLR2004 - HTTP
    return None


def callback_recovery(customers: list[str]) -> str:
    """The operation wraps a callable: its result comes back, its exception passes through."""
    with service(1) as crm, flowmark.workflow("crm.sync") as flow:
        try:
            imported = flow.call(
                "push-to-crm",
                push,
                crm,
                customers,
                attempt=Attempt("customer-batch-42", 1),
                map_error=crm_failure,
            )
        except urllib.error.HTTPError:
            imported = flow.call(
                "push-to-crm",
                push,
                crm,
                customers,
                attempt=Attempt("customer-batch-42", 2),
                map_error=crm_failure,
            )
        flow.done(outcome="complete", result={"imported": imported})
    return flow.run_id


def partial_booking(reservations: list[str]) -> tuple[flowmark.RunRef, list[str]]:
    """A run that does part of its work and fails; returns its reference and what remains."""
    flow = flowmark.workflow("booking.confirm")
    remaining = list(reservations)
    with service(3) as provider:
        for reservation in reservations:
            try:
                # No attempt: each reservation is an occurrence of its own.
                flow.call("confirm-reservation", post, provider, reservation)
            except urllib.error.HTTPError:
                break
            remaining.remove(reservation)
    confirmed = len(reservations) - len(remaining)
    flow.fail(
        code="PROVIDER_UNAVAILABLE",
        retryable=True,
        outcome="partial",
        result={"confirmed": confirmed, "remaining": len(remaining)},
    )
    return flow.ref, remaining


def booking_recovery(previous: flowmark.RunRef, remaining: list[str]) -> str:
    """A run of its own does the rest and names the run it retries, which stays failed."""
    with service() as provider, flowmark.workflow("booking.confirm", retry_of=previous) as flow:
        for reservation in remaining:
            flow.call(
                "confirm-remaining", post, provider, reservation, attempt=Attempt(reservation, 1)
            )
        flow.done(outcome="complete", result={"confirmed": len(remaining), "remaining": 0})
    return flow.run_id


def main() -> None:
    """Record three stories where FLOWMARK_ENDPOINT says, by default on loopback."""
    customers = ["Ada", "Grace", "Edsger"]
    print("manual recovery  ", manual_recovery(customers))
    print("callback recovery", callback_recovery(customers))
    previous, remaining = partial_booking(["first", "second", "third"])
    print("partial booking  ", previous.run_id)
    print("booking recovery ", booking_recovery(previous, remaining))
    flowmark.shutdown()  # raises DeliveryError if anything was not acknowledged


if __name__ == "__main__":
    main()
