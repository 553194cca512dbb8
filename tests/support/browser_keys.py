"""Browser keys of a store that is served, and requests as a page sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import requests

from flowmark_otel import names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import open_store
from tests.support import payloads

PAGE: Final = "https://shop.example"
WAIT: Final = 30


def browser_key(url: str, *pages: str, events_per_minute: int | None = None) -> str:
    """A new browser key of project ``default`` in the store at ``url``."""
    store = open_store(url)
    try:
        made = Keys(store).create(
            "default",
            names.KEY_BROWSER,
            pages=pages or (PAGE,),
            events_per_minute=events_per_minute,
        )
    finally:
        store.close()
    return made[1]


def send(
    http: str,
    key: str,
    *spans: payloads.Json,
    origin: str | None = PAGE,
    headers: Mapping[str, str] | None = None,
) -> requests.Response:
    """The answer to spans that a page of ``origin`` sends."""
    sent = {"authorization": f"Bearer {key}", "content-type": payloads.JSON, **(headers or {})}
    if origin is not None:
        sent["origin"] = origin
    return requests.post(
        f"http://{http}/v1/traces",
        data=payloads.as_json(payloads.request(spans)),
        headers=sent,
        timeout=WAIT,
    )
