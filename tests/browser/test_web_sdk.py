"""The stock OpenTelemetry web SDK in Chromium: with a browser key, and through the site's proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from flowmark_otel.dashboard.words import FROM_BROWSER
from tests.browser.conftest import visitor
from tests.support.api import Api
from tests.support.browser_keys import browser_key
from tests.support.proxying import asgi
from tests.support.server import Running, options, running
from tests.support.web_sdk import HTML, bundle

pytestmark = [pytest.mark.needs("chromium", "node", "npm"), pytest.mark.timeout(300)]

Pages = Callable[[str], str]


@pytest.fixture(scope="module")
def pages(request: pytest.FixtureRequest) -> Pages:
    """The pages of a shop: one, and its script."""
    script = bundle(request.config.cache.mkdir("web-sdk"))
    return lambda path: script if path == "/page.js" else HTML


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Running]:
    """A backend that nothing was sent to."""
    with running(options(tmp_path / "store.db")) as found:
        yield found


@contextmanager
def shop(browser: Browser, address: str) -> Iterator[Callable[..., list[str]]]:
    """Somebody who looks at the shop; what they call makes the page record and send."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://{address}/")

    def checkout(**how: Any) -> list[str]:
        given: dict[str, Any] = {"workflow": "shop.checkout", "run": "cart-7", "headers": {}}
        given |= {"timeout": 20_000, **how}
        ended: list[str] = page.evaluate("how => checkout(how)", given)
        return ended

    try:
        yield checkout
    finally:
        context.close()


def expected(run: dict[str, Any], api: Api) -> None:
    """The run is told whole: a failed attempt, a completed one, outcome and result."""
    assert (run["status"], run["outcome"], run["result"]) == ("completed", "complete", {"paid": 1})
    [group] = api.get(f"/runs/{run['key']}/attempts")["items"]
    assert [each["status"] for each in group["attempts"]] == ["failed", "completed"]
    assert group["attempts"][0]["error"]["code"] == "DECLINED"
    assert group["verdict"] == "after_retry"


def test_a_page_sends_with_a_browser_key(
    browser: Browser, pages: Pages, backend: Running, tmp_path: Path
) -> None:
    """A20, D4: another origin's page records with plain attributes; qualified, marked, readable."""
    api = Api(backend)
    with asgi(pages) as address:
        key = browser_key(f"sqlite:///{tmp_path}/store.db", f"http://{address}")
        where = {
            "url": f"http://{backend.http}/v1/traces",
            "headers": {"authorization": f"Bearer {key}"},
        }
        with shop(browser, address) as checkout:
            assert checkout(**where) == [""]
        with asgi(pages) as other, shop(browser, other) as elsewhere:
            [refused] = elsewhere(**where, run="cart-8", timeout=500)
            assert refused != ""
    [run] = api.get("/runs")["items"]
    assert (run["workflow"], run["origin"]) == ("browser.shop.checkout", "browser")
    assert run["retry_of"]["workflow"] == "browser.shop.checkout"
    expected(run, api)
    with visitor(browser, backend) as reader:
        reader.sign_in(backend.read_key)
        expect(reader.page.get_by_text(FROM_BROWSER)).to_be_visible()
        reader.page.get_by_role("link", name="cart-7", exact=True).first.click()
        expect(reader.page.get_by_text(FROM_BROWSER)).to_be_visible()
        assert reader.complaints == []


def test_a_page_sends_through_its_own_site(
    browser: Browser, pages: Pages, backend: Running
) -> None:
    """A20, A24: no key in the page, no CORS; the server's names are kept, and only those listed."""
    api = Api(backend)
    settings = {"endpoint": f"http://{backend.http}", "api_key": backend.ingest_key}
    with (
        asgi(pages, **settings, workflows=["shop.checkout"]) as address,
        shop(browser, address) as checkout,
    ):
        assert checkout(url="/v1/traces") == [""]
        [refused] = checkout(url="/v1/traces", workflow="payroll")
        assert "400" in refused
    [run] = api.get("/runs")["items"]
    assert (run["workflow"], run["origin"]) == ("shop.checkout", "server")
    expected(run, api)
