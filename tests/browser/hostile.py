"""A store in which every field that a sender can set was set by somebody who means no good."""

from __future__ import annotations

import json
from typing import Any, Final

import requests

from flowmark_otel import names
from tests.support.otlp import json_attributes
from tests.support.server import Running

LONG: Final = "W" * 100_000

PAYLOADS: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus='alert(1)",
    "</title></code></td></tr></table></main><h1>gone</h1><!--",
    "</svg><svg/onload=alert(1)><style>*{display:none}</style>",
    "<base href=https://evil.example><meta http-equiv=refresh content=0;url=https://evil.example>",
    "javascript:alert(1)//https://evil.example/?a=b&c=d#e",
    "data:text/html,<script>alert(1)</script>",
    "{{ 7*7 }}{% raw %}${7*7}#{7*7}<%= 7*7 %>",
    "../../..//evil.example/%2e%2e%2f?x=1&group_id=2#top",
    "\u202egnp.exe\u2066evil\u2069\u200b\ufeff\u2028",
    "line\nbreak\ttab\r\x1b[31mred\x07",
    "hx-get=/logout hx-trigger=load data-hx-on::load=alert(1)",
    "W" * 190,
    "\U0001f600" * 60 + "é" * 60 + "漢" * 60,
)

_SECOND: Final = 10**9
_ZERO: Final = 1_773_234_004_000_000_000


def send(backend: Running) -> None:
    """Send all of it; what is refused is kept as evidence of its refusal."""
    for number, payload in enumerate(PAYLOADS, 1):
        _send(backend, payload, [*_attempts(number, payload), _run(number, payload)])
        _send(backend, payload, _refused(number, payload))
    _send(backend, LONG, [_run(99, "long"), *_attempts(98, "long")])
    _send(backend, "long", [_run(97, LONG)])


def _send(backend: Running, payload: str, spans: list[dict[str, Any]]) -> None:
    resource = {
        "service.name": payload,
        "service.version": f"v {payload}",
        "service.instance.id": f"i {payload}",
    }
    body = {
        "resourceSpans": [
            {
                "resource": {"attributes": json_attributes(resource)},
                "scopeSpans": [{"spans": spans}],
            }
        ]
    }
    agent = "".join(sign for sign in payload[:1000] if " " <= sign <= "~") or "none"
    headers = {
        "authorization": backend.ingest,
        "content-type": "application/json",
        "user-agent": agent,
    }
    answer = requests.post(
        f"http://{backend.http}/v1/traces",
        data=json.dumps(body).encode(),
        headers=headers,
        timeout=20,
    )
    assert answer.status_code < 500, answer.text


def _identity(number: int, payload: str) -> dict[str, object]:
    return {
        names.WORKFLOW_NAME: f"flow {payload}"[:200],
        names.RUN_ID: f"{number} {payload}"[:200],
    }


def _span(number: int, part: int, name: str, attributes: dict[str, object]) -> dict[str, Any]:
    start = _ZERO + part * 2 * _SECOND
    return {
        "traceId": f"{number:032x}",
        "spanId": f"{number * 100 + part:016x}",
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + _SECOND),
        "status": {"code": 2, "message": name},
        "attributes": json_attributes(attributes),
    }


def _attempts(number: int, payload: str) -> list[dict[str, Any]]:
    """A gap, a conflict, an observed try and an ordinary occurrence."""
    spans = []
    for part, tried in ((1, 1), (2, 3), (3, 3)):
        attributes = {
            **_identity(number, payload),
            names.OPERATION_NAME: payload[:200],
            names.OPERATION_ID: f"{part} {payload}"[:200],
            names.ATTEMPT_GROUP_ID: f"g {payload}"[:128],
            names.ATTEMPT_NUMBER: tried,
            names.ATTEMPT_SERIES_NAME: payload[:200],
            names.ATTEMPT_SYSTEM_NAME: payload[:200],
            names.ATTEMPT_IDEMPOTENCY_KEY: payload,
            names.ERROR_CODE: f"c {payload}"[:128],
            names.ERROR_TYPE: payload,
        }
        span = _span(number, part, payload, attributes)
        observed: dict[str, object] = {
            names.OBSERVED_NUMBER: 1,
            names.OBSERVED_OUTCOME: "failed",
            names.OBSERVED_SERIES: payload[:200],
            names.OBSERVED_SYSTEM: payload[:200],
            names.ERROR_TYPE: payload[:128],
        }
        span["events"] = [
            {
                "timeUnixNano": str(_ZERO + part),
                "name": names.ATTEMPT_OBSERVED,
                "attributes": json_attributes(observed),
            }
        ]
        spans.append(span)
    ordinary = {**_identity(number, payload), names.OPERATION_NAME: f"o {payload}"[:200]}
    return [*spans, _span(number, 4, payload, ordinary)]


def _run(number: int, payload: str) -> dict[str, Any]:
    attributes = {
        **_identity(number, payload),
        names.RUN_OUTCOME: payload[:64],
        f"{names.RUN_RESULT_PREFIX}note": payload[:1024],
        f"{names.RUN_RESULT_PREFIX}link": f"https://evil.example/{payload}"[:1024],
        names.RETRY_OF_WORKFLOW_NAME: payload[:200],
        names.RETRY_OF_RUN_ID: payload[:200],
        names.PARENT_RUN_ID: payload[:200],
        names.CORRELATION_ID: payload[:200],
        names.ERROR_CODE: f"r {payload}"[:128],
    }
    return _span(number, 9, payload, attributes)


def _refused(number: int, payload: str) -> list[dict[str, Any]]:
    """Rules broken, so that the refusal itself speaks of the payload."""
    bad: list[dict[str, object]] = [
        {names.ATTEMPT_GROUP_ID: payload, names.ATTEMPT_NUMBER: payload},
        {names.ATTEMPT_GROUP_ID: LONG, names.ATTEMPT_NUMBER: 1},
        {f"flowmark.{payload}": payload, names.RECORD_TYPE: payload},
        {names.RUN_OUTCOME: "x", f"{names.RUN_RESULT_PREFIX}{payload}": payload},
    ]
    return [
        _span(number, 20 + at, payload, {**_identity(number, payload), **attributes})
        for at, attributes in enumerate(bad)
    ]
