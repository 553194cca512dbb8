"""Overview, evidence, ingest and the settings of time in Chromium."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Visitor, visitor
from tests.support.server import Running

pytestmark = pytest.mark.needs("chromium")

VIEWS = ("/", "/runs", "/evidence", "/evidence?kind=gap", "/ingest")


@pytest.fixture(params=[True, False], ids=["scripts", "no-scripts"])
def reader(request: pytest.FixtureRequest, browser: Browser, served: Running) -> Iterator[Visitor]:
    """Somebody signed in, with scripts and without."""
    with visitor(browser, served, scripts=request.param) as found:
        found.sign_in(served.read_key)
        yield found
        assert found.complaints == []


def test_from_the_overview_to_the_evidence_of_an_attempt(reader: Visitor) -> None:
    """A9, E4: the worst stands first, with what failed in it; two clicks lead to the events."""
    page = reader.page
    page.get_by_role("link", name="Overview").click()
    expect(page.locator(".lead")).to_contain_text("extra attempts per 100 operations")
    expect(page.get_by_role("img", name="Bar chart: extra attempts")).to_be_visible()
    expect(page.locator("table.ops tbody th a").first).to_have_text("push-to-crm")
    page.locator("table.ops tbody tr").first.locator("td a").last.click()
    expect(page.get_by_label("Operation", exact=True)).to_have_value("push-to-crm")
    flood = page.locator("table.runs tbody tr", has_text="flood")
    flood.get_by_role("link", name="attempt 29 CRM_RATE_LIMITED").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Attempt 29 of batch-3")
    expect(page.locator("table.events")).to_contain_text("-end")


def test_the_form_works_and_its_address_can_be_shared(reader: Visitor) -> None:
    """D5: filters are sent by the browser alone, and the address brings the same page back."""
    page = reader.page
    reader.open("/runs")
    page.get_by_label("An operation is").select_option("after_retry")
    page.get_by_text("More filters").click()
    page.get_by_label("Group id").fill("batch-1")
    page.get_by_label("Arrived").select_option("24h")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("td.r-run a")).to_have_text(["retried"])
    shared = page.url
    assert "group_id=batch-1" in shared
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("td.r-run a")).not_to_have_count(1)
    page.goto(shared)
    expect(page.locator("td.r-run a")).to_have_text(["retried"])
    expect(page.get_by_label("Group id")).to_have_value("batch-1")


def test_the_evidence_of_each_kind_is_reached_from_the_overview(reader: Visitor) -> None:
    """A10, A17: what is missing and what implies it, one click from the overview."""
    page = reader.page
    for word, said in (
        ("Gaps", "attempt 3 was received"),
        ("Unresolved references", "named as predecessor"),
        ("Conflicts", "which record is true for attempt 2"),
        ("Rejected events", "accepted with another operation id"),
    ):
        reader.open("/")
        page.get_by_role("link", name=word).click()
        expect(page.locator("table.evt")).to_contain_text(said)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_views_of_a_project_fit_their_window(
    browser: Browser, served: Running, tmp_path: Path, scheme: Literal["light", "dark"], width: int
) -> None:
    """D5: hostile names and all, nothing sticks out; what is wider scrolls and can be focused."""
    with visitor(browser, served, scheme=scheme, width=width) as found:
        found.sign_in(served.read_key)
        page = found.page
        for index, path in enumerate(VIEWS):
            found.open(path)
            over = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert over <= 0, (path, over)
            wide = page.evaluate(
                "[...document.querySelectorAll('main *')].filter(e => e.scrollWidth >"
                " e.clientWidth + 1 && getComputedStyle(e).overflowX === 'auto'"
                " && e.tabIndex < 0).length"
            )
            assert wide == 0, path
            page.screenshot(path=tmp_path / f"{index}-{scheme}-{width}.png", full_page=True)
        assert found.complaints == []


def test_forced_colours_and_less_motion_leave_every_shape(
    browser: Browser, served: Running
) -> None:
    """A11: with the reader's own colours marks, bars and the current view are still told apart."""
    with visitor(browser, served) as found:
        found.page.emulate_media(forced_colors="active", reduced_motion="reduce")
        found.sign_in(served.read_key)
        found.open("/")
        page = found.page
        moving = page.evaluate("getComputedStyle(document.querySelector('main a')).transition")
        assert "0.12s" not in moving
        current = page.locator(".tabs a[aria-current]")
        expect(current).to_have_text("Overview")
        line = current.evaluate("e => getComputedStyle(e).textDecorationLine")
        assert line == "underline"
        box = page.locator("svg.chart rect").first.bounding_box()
        assert box is not None
        assert box["height"] > 1
        assert found.complaints == []


def test_local_times_are_on_hover_and_by_a_setting(browser: Browser, served: Running) -> None:
    """D5: the server writes UTC; the reader's own zone is in tooltips and, if set, in the text."""
    with visitor(browser, served, zone="Asia/Kolkata") as found:
        found.sign_in(served.read_key)
        page = found.page
        started = page.locator("tr", has_text="retried").last.locator("td.r-start time").first
        expect(started).to_have_text("13:00:03")
        title = started.get_attribute("title")
        assert title is not None
        assert "2026-03-11T13:00:03" in title
        assert "2026-03-11 18:30:03 +05:30 Asia/" in title
        page.get_by_role("button", name="Show local times").click()
        expect(started).to_have_text("18:30:03")
        expect(page.locator("#zone")).to_contain_text("Times local")
        found.open("/ingest")
        expect(page.locator("footer")).to_contain_text("Times local")
        page.get_by_role("button", name="Show UTC").click()
        expect(page.locator("#zone")).to_have_text("All times UTC.")
        assert found.complaints == []


UNREACHED = r"""() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const text = walker.currentNode;
    if (/\d\d:\d\d:\d\d/.test(text.data) && !text.parentElement.closest("time"))
      found.push(text.data);
  }
  return found;
}"""


def test_the_setting_of_times_reaches_every_time(browser: Browser, served: Running) -> None:
    """D5: on a run, its events, its attempts, what is not known and what arrived."""
    with visitor(browser, served, zone="Asia/Kolkata") as found:
        found.sign_in(served.read_key)
        page = found.page
        run = page.locator("td.r-run").get_by_role("link", name="ugly", exact=True)
        address = str(run.get_attribute("href"))
        place = "operation=push-to-crm&group_id=batch-2&number=2"
        asked = "/?since=2020-01-01T00:00:00Z&until=2030-01-01T00:00:00Z"
        views = (address, f"{address}/events", f"{address}/attempt?{place}")
        for path in (*views, "/evidence", "/ingest", asked):
            found.open(path)
            assert page.evaluate(UNREACHED) == [], path
        assert found.complaints == []


def test_between_a_phone_and_a_desk_strips_and_bars_keep_room(
    browser: Browser, served: Running
) -> None:
    """D5: at every width nothing sticks out, and what is drawn is wide enough to be read."""
    with visitor(browser, served) as found:
        found.sign_in(served.read_key)
        page = found.page
        run = page.locator("td.r-run").get_by_role("link", name="ugly", exact=True)
        for path in ("/", "/runs", str(run.get_attribute("href"))):
            found.open(path)
            for width in (721, 860, 980, 981, 1024, 1100, 1240, 1241):
                page.set_viewport_size({"width": width, "height": 800})
                over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                narrowest = page.evaluate(
                    "Math.min(...[...document.querySelectorAll('.runs .way, .att td.plot')]"
                    ".map(element => element.getBoundingClientRect().width))"
                )
                assert over <= 0, (path, width, over)
                assert narrowest >= 100, (path, width, narrowest)
        assert found.complaints == []


@pytest.mark.parametrize("path", ["/", "/evidence"])
def test_a_list_can_be_read_on_a_phone_without_scrolling_sideways(
    browser: Browser, served: Running, path: str
) -> None:
    """D5: rows become cards with all their values, and stay rows of a table for a reader."""
    with visitor(browser, served, width=390) as found:
        found.sign_in(served.read_key)
        found.open(path)
        page = found.page
        lists = page.locator("table.cards")
        assert lists.count() >= 1
        for table in lists.all():
            assert table.evaluate("table => table.parentElement.scrollWidth") <= 390 - 32
            assert table.get_by_role("row").count() > 1
            assert table.get_by_role("cell").count() > 1
        assert found.complaints == []


def test_without_scripts_all_times_are_utc_and_say_so(browser: Browser, served: Running) -> None:
    """D5: no button that does nothing."""
    with visitor(browser, served, scripts=False) as found:
        found.sign_in(served.read_key)
        expect(found.page.get_by_role("button", name="Show local times")).to_have_count(0)
        expect(found.page.locator("#zone")).to_have_text("All times UTC.")


def test_the_program_of_the_first_page_records_a_retry(
    browser: Browser, empty: Running, tmp_path: Path
) -> None:
    """D5: environment and program, copied from the page, give the page that they promise."""
    with visitor(browser, empty) as found:
        found.sign_in(empty.read_key)
        page = found.page
        environment = page.get_by_label("Environment", exact=True).inner_text()
        set_ = dict(
            line.removeprefix("export ").split("=", 1) for line in environment.splitlines() if line
        )
        assert set_["FLOWMARK_API_KEY"] == "fmk_…"
        program = tmp_path / "first.py"
        program.write_text(page.get_by_label("Python example").inner_text())
        subprocess.run(
            [sys.executable, program],
            env={**os.environ, **set_, "FLOWMARK_API_KEY": empty.ingest_key},
            check=True,
            timeout=40,
        )
        page.get_by_role("link", name="Look again").click()
        expect(page.locator(".trio tbody tr", has_text="completed after retry")).to_contain_text(
            "1"
        )
        expect(page.locator("table.ops")).to_contain_text("push-to-crm")
        assert found.complaints == []
