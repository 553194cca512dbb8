"""The first pages in Chromium: with and without scripts, light and dark, wide and narrow."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Visitor, visitor
from tests.browser.story import HOSTILE
from tests.support.server import Running, options, running

pytestmark = pytest.mark.needs("chromium")

OURS = {"/static/times.js", "/static/htmx.min.js"}
"""The scripts that our pages name; nothing else runs."""

SEEN = (
    "failed, a later attempt is known",
    "conflict",
    "no evidence",
    "open: no end received",
    "completed",
    "failed, highest known",
)


@pytest.fixture(params=[True, False], ids=["scripts", "no-scripts"])
def reader(request: pytest.FixtureRequest, browser: Browser, served: Running) -> Iterator[Visitor]:
    """Somebody signed in, with scripts and without."""
    with visitor(browser, served, scripts=request.param) as found:
        found.sign_in(served.read_key)
        yield found
        assert found.complaints == []


def test_a_retry_is_found_and_read(reader: Visitor) -> None:
    """A9, D5: two clicks from the list to the evidence of an attempt that failed first."""
    page = reader.page
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    page.get_by_role("link", name="retried", exact=True).first.click()
    expect(page.locator(".verdict")).to_contain_text(
        "Completed after retry. push-to-crm for batch-1 needed 2 attempts."
    )
    table = page.locator("table.att")
    expect(table.locator("tbody tr")).to_have_count(2)
    expect(table.locator("tbody tr").first).to_contain_text("CRM_UNAVAILABLE")
    page.get_by_role("link", name="All events, in order of arrival").click()
    expect(page.locator("section.group")).to_have_count(6)


def test_every_mark_is_drawn_with_its_word(reader: Visitor) -> None:
    """A9-A11, A17: gap, open, conflict, unresolved reference on one page, none by colour alone."""
    page = reader.page
    page.get_by_role("link", name="ugly", exact=True).last.click()
    strip = page.get_by_role("group", name="Attempts in number order").first
    for word in SEEN:
        expect(strip.get_by_role("img", name=word, exact=True)).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text("1 gap, 1 open and 1 conflict")
    expect(page.get_by_text("unresolved:")).to_be_visible()
    expect(page.locator("#r2 + dl")).to_contain_text("crm.sync / retried")
    strip.get_by_role("link").last.click()
    expect(page.locator("tr:target")).to_contain_text("Failed, highest known")


def test_a_conflict_is_seen_side_by_side(reader: Visitor) -> None:
    """A6, A9: from the table of attempts to both records of the one in conflict, and on."""
    page = reader.page
    page.get_by_role("link", name="ugly", exact=True).last.click()
    conflict = page.locator("table.att tbody tr").nth(1)
    conflict.get_by_role("link", name="2 events").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Attempt 2 of batch-2")
    expect(page.locator("table.cmp").first).to_contain_text("CRM_TIMEOUT")
    expect(page.locator("table.cmp").first.locator("tr.d")).to_have_count(10)
    page.get_by_role("link", name="Attempt 1: failed").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Attempt 1 of batch-2")
    page.get_by_label("Compare with attempt").fill("7")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compared with attempt 7")).to_be_visible()
    assert "with=7" in page.url


def test_a_predecessor_and_its_successor_lead_to_each_other(reader: Visitor) -> None:
    """A17: retry references are links both ways; each run keeps its own status."""
    page = reader.page
    page.get_by_role("link", name="retried", exact=True).first.click()
    page.get_by_role("link", name="crm.sync / ugly").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ugly")
    expect(page.locator(".verdict")).to_contain_text("Failed.")
    page.get_by_role("link", name="crm.sync / retried").click()
    expect(page.locator(".verdict")).to_contain_text("Completed after retry.")


def test_a_folded_group_opens_to_all_its_attempts(reader: Visitor) -> None:
    """A9: thirty attempts are folded, and one click shows each."""
    page = reader.page
    page.get_by_role("link", name="flood", exact=True).click()
    rows = page.locator("table.att tbody tr")
    expect(rows).to_have_count(9)
    page.get_by_role("link", name="show all 30").click()
    expect(rows).to_have_count(30)


@pytest.mark.timeout(180)
def test_hostile_telemetry_is_text(reader: Visitor) -> None:
    """D5: no dialog, no policy report, no element that a sender wrote; it can be read as text."""
    page = reader.page
    base = reader.base
    reader.open("/runs?q=evil")
    links = page.locator("td.r-run a")
    expect(links).to_have_count(len(HOSTILE))
    for address in [link.get_attribute("href") for link in links.all()]:
        for path in (f"{address}", f"{address}/events"):
            reader.open(path)
            assert page.url == f"{base}{path}"
            expect(page.locator("main")).to_have_count(1)
            assert page.locator("h1").count() == 1
            for tag in (
                "script:not([src])",
                "img",
                "style",
                "base",
                "iframe",
                "[onload]",
                "[onmouseover]",
            ):
                assert page.locator(tag).count() == 0, (path, tag)
            assert {script.get_attribute("src") for script in page.locator("script").all()} <= OURS
    reader.open("/runs?q=evil")
    text = page.locator("main").inner_text()
    for shown in (
        "<script>alert(1)</script>",
        "evil⟨U+202E⟩gnp.exe",
        "line⟨U+000A⟩break",
        "{{ 7*7 }}",
    ):
        assert shown in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_fits_its_window(
    browser: Browser, served: Running, tmp_path: Path, scheme: Literal["light", "dark"], width: int
) -> None:
    """D5: in both schemes, wide and narrow, nothing sticks out; colours follow the scheme."""
    with visitor(browser, served, scheme=scheme, width=width) as found:
        found.sign_in(served.read_key)
        page = found.page
        pages = {"runs": "/runs"}
        for name in ("retried", "ugly", "flood"):
            link = page.locator("td.r-run").get_by_role("link", name=name, exact=True)
            pages[name] = str(link.get_attribute("href"))
        found.open("/runs?q=WWW")
        pages["long"] = str(page.locator("td.r-run a").get_attribute("href"))
        pages["events"] = f"{pages['long']}/events"
        for name, path in pages.items():
            found.open(path)
            over = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert over <= 0, (name, over)
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert background == ("rgb(15, 19, 24)" if scheme == "dark" else "rgb(255, 255, 255)")
            page.screenshot(path=tmp_path / f"{name}-{scheme}-{width}.png", full_page=True)
        assert found.complaints == []


def test_the_policy_is_enforced(browser: Browser, served: Running) -> None:
    """D5: the browser itself refuses what the policy forbids on our pages."""
    with visitor(browser, served) as found:
        found.sign_in(served.read_key)
        added = "const s = document.createElement('style'); s.textContent = '*{color:red}';"
        found.page.evaluate(f"() => {{ {added} document.head.append(s); }}")
        assert any("Content Security Policy" in said for said in found.complaints)


def test_signing_in_and_out(browser: Browser, served: Running) -> None:
    """D5: a wrong key is refused with a sentence, a right one opens the page that was asked for."""
    with visitor(browser, served) as found:
        found.open("/runs?q=flood")
        page = found.page
        page.get_by_label("Read key").fill("fmk_wrong_key")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("this is no read key of this server")
        page.get_by_label("Read key").fill(served.read_key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("td.r-run a")).to_have_text(["flood"])
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("button", name="Sign out").first.click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        found.open("/runs")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_without_authentication_the_pages_open_at_once(browser: Browser, tmp_path: Path) -> None:
    """D5: under --insecure-no-auth nobody signs in or out, and the lines to copy need no key."""
    with (
        running(options(tmp_path / "store.db", insecure_no_auth=True)) as backend,
        visitor(browser, backend) as found,
    ):
        found.open("/")
        page = found.page
        expect(page.get_by_role("heading", level=1)).to_have_text("Nothing received yet")
        assert "fmk_" not in page.locator("main").inner_text()
        expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
        found.open("/login")
        page.wait_for_url(f"{found.base}/")
        assert found.complaints == []


def test_lines_of_an_empty_store_send_a_first_span(
    browser: Browser, empty: Running, tmp_path: Path
) -> None:
    """D4, D5: the lines of the first page, pasted into a shell, show a retry on that page."""
    with visitor(browser, empty) as found:
        found.sign_in(empty.read_key)
        page = found.page
        expect(page.get_by_role("heading", level=1)).to_have_text("Nothing received yet")
        page.screenshot(path=tmp_path / "empty.png", full_page=True)
        lines = page.get_by_label("Two spans with curl").inner_text()
        pasted = lines.replace("fmk_…", empty.ingest_key)
        sent = subprocess.run(["sh", "-c", pasted], capture_output=True, text=True, check=True)
        assert '"stored":"4"' in sent.stdout.replace(" ", "")
        page.get_by_role("link", name="Look again").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        page.get_by_role("link", name="push-to-crm").click()
        page.locator("td.r-run a").click()
        expect(page.locator(".verdict")).to_contain_text("needed 2 attempts")
        assert found.complaints == []
