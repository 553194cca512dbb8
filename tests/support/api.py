"""A running backend that holds one story, and a client of its API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import requests

from flowmark_otel import names
from tests.support import payloads
from tests.support.history import SECOND, attempt, operation_of, run_of
from tests.support.server import Running, options, running
from tests.support.urls import Place

WAIT: Final = 30
FAILED: Final = {"status": {"code": 2}}


class Api(NamedTuple):
    """A backend, and GETs below ``/api/v1`` with its read key."""

    running: Running

    def get(self, path: str, **query: object) -> Any:
        """The JSON of a success."""
        answer = self.answer(path, query=query)
        assert answer.status_code == requests.codes.ok, answer.text
        return answer.json()

    def answer(
        self,
        path: str,
        authorization: str | None = "",
        *,
        method: str = "GET",
        query: Mapping[str, object] | None = None,
    ) -> requests.Response:
        """Any answer; ``authorization`` is the read key's unless given, None sends none."""
        sent = self.running.read if authorization == "" else authorization
        return requests.request(
            method,
            f"http://{self.running.http}/api/v1{path}",
            params={name: str(value) for name, value in (query or {}).items()},
            headers={} if sent is None else {"authorization": sent},
            timeout=WAIT,
        )

    def send(self, *spans: payloads.Json) -> requests.Response:
        """Send spans over OTLP/HTTP with the ingest key."""
        return requests.post(
            f"http://{self.running.http}/v1/traces",
            data=payloads.as_json(payloads.request(spans)),
            headers={"content-type": payloads.JSON, "authorization": self.running.ingest},
            timeout=WAIT,
        )


def story() -> list[payloads.Json]:
    """A run whose push failed and then succeeded beyond a gap, and the run that it retries."""
    later = {"startTimeUnixNano": str(payloads.START + 5 * SECOND)}
    later["endTimeUnixNano"] = str(payloads.START + 6 * SECOND)
    observed = {
        "name": names.ATTEMPT_OBSERVED,
        "timeUnixNano": str(payloads.START + 1),
        "attributes": payloads.attributes(
            {
                names.OBSERVED_NUMBER: 1,
                names.OBSERVED_OUTCOME: "failed",
                names.OBSERVED_DURATION_NS: 5,
                names.OBSERVED_SYSTEM: "crm",
                "error.type": "Timeout",
            }
        ),
    }
    first = attempt(
        "batch-42", 1, error__code="CRM_UNAVAILABLE", error__retryable=True, attempt__limit=5
    )
    return [
        payloads.span(1, run_of("r0", outcome="partial"), **FAILED),
        payloads.span(2, first, events=[observed], **FAILED),
        payloads.span(3, attempt("batch-42", 3), **later),
        payloads.span(4, attempt("batch-42", 3)),  # claims the place of span 3
        payloads.span(5, operation_of(operation="load")),
        payloads.span(
            6,
            run_of("r1", retry_of=("crm.sync", "r0"), run__result__imported=3, parent_run__id="r0"),
        ),
        payloads.span(7, attempt("batch-42", 1, run_id="r2"), startTimeUnixNano="0"),
    ]


@contextmanager
def told(store: Place) -> Iterator[Api]:
    """A backend on a new store, the story sent."""
    with running(options(store)) as backend:
        api = Api(backend)
        answer = api.send(*story())
        assert answer.status_code == requests.codes.ok, answer.text
        yield api
