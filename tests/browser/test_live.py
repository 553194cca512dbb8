"""An open page is told of new evidence, and stays as it is until its reader wants to see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Browser, expect

from flowmark_otel.model import Span
from tests.browser.conftest import visitor
from tests.support.marked import attempt, run
from tests.support.otlp import traces_json
from tests.support.server import Running, options, running

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Running]:
    """A backend with one attempt that failed."""
    with running(options(tmp_path / "store.db")) as found:
        _send(found, attempt(1, 0, 1, "CRM_UNAVAILABLE"))
        yield found


def _send(backend: Running, *spans: Span) -> None:
    headers = {"authorization": backend.ingest, "content-type": "application/json"}
    answer = requests.post(
        f"http://{backend.http}/v1/traces", data=traces_json(spans), headers=headers, timeout=20
    )
    assert answer.ok, answer.text


def test_new_runs_and_events_are_announced_and_nothing_moves(
    browser: Browser, backend: Running
) -> None:
    """D5: "2 new, show" over the page; rows stay where they are until the reader asks for them."""
    with visitor(browser, backend) as found:
        found.sign_in(backend.read_key)
        page = found.page
        found.open("/runs")
        rows = page.locator("table.runs tbody tr")
        expect(rows).to_have_count(1)
        place = rows.first.bounding_box()
        expect(page.locator(".news a")).to_be_hidden()
        _send(backend, run("second"), run("third"))
        announced = page.get_by_role("status").get_by_role("link", name="2 new, show")
        expect(announced).to_be_visible(timeout=15_000)
        expect(rows).to_have_count(1)
        assert rows.first.bounding_box() == place
        announced.click()
        expect(rows).to_have_count(3)
        page.locator("td.r-run a").last.click()
        expect(page.locator("table.att tbody tr")).to_have_count(1)
        _send(backend, attempt(2, 2, 3))
        announced = page.get_by_role("status").get_by_role("link", name="2 new events, show")
        expect(announced).to_be_visible(timeout=15_000)
        expect(page.locator("table.att tbody tr")).to_have_count(1)
        announced.click()
        expect(page.locator("table.att tbody tr")).to_have_count(2)
        assert found.complaints == []


def test_without_scripts_nothing_is_announced_and_nothing_is_lost(
    browser: Browser, backend: Running
) -> None:
    """D5: a page without scripts shows no empty announcement; opened again it has all."""
    with visitor(browser, backend, scripts=False) as found:
        found.sign_in(backend.read_key)
        found.open("/runs")
        expect(found.page.locator(".news a")).to_be_hidden()
        _send(backend, run("second"))
        found.page.reload()
        expect(found.page.locator("table.runs tbody tr")).to_have_count(2)
        assert found.complaints == []
