"""How the same-origin proxy is set up, and mounted in a site."""

from __future__ import annotations

from http import HTTPStatus

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from flowmark_otel.errors import ConfigurationError
from flowmark_otel.proxy import AsgiProxy, WsgiProxy
from tests.support.payloads import JSON
from tests.support.proxying import Said, scripted


@pytest.mark.parametrize("kind", [AsgiProxy, WsgiProxy])
def test_settings_come_from_arguments_and_environment(
    kind: type[AsgiProxy | WsgiProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract, section 4: all faults at once, each naming its source and never a key."""
    monkeypatch.setenv("FLOWMARK_PROXY_ENDPOINT", "ftp://nowhere")
    monkeypatch.setenv("FLOWMARK_PROXY_API_KEY", "fmk a secret")
    with pytest.raises(ConfigurationError) as found:
        kind(max_in_flight=0, prefix_path="telemetry")
    assert len(found.value.faults) == 4
    assert "FLOWMARK_PROXY_ENDPOINT: must be an address" in str(found.value)
    assert "secret" not in str(found.value)


async def test_a_mounted_proxy_has_its_paths_below() -> None:
    """A24: mounted in a Starlette site, without an application of its own: 404 beside its paths."""
    said = Said(200, {"content-type": JSON}, b"{}")
    with scripted(lambda _: said) as endpoint:
        proxy = AsgiProxy(endpoint=endpoint)
        site = Starlette(routes=[Mount("/telemetry", proxy)])
        transport = httpx.ASGITransport(app=site)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answers = [
                (await client.post(path, content=b"{}", headers={"content-type": JSON})).status_code
                for path in ("/telemetry/v1/traces", "/telemetry/v1/other", "/v1/traces")
            ]
        proxy.close()
    assert answers == [HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.NOT_FOUND]
