"""Every view is usable without sight, without a mouse, enlarged, and in colours of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visitor, visitor
from tests.support import axe
from tests.support.server import Running

pytestmark = [pytest.mark.needs("chromium", "node", "npm"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> str:
    """axe-core."""
    return axe.source(request.config.cache.mkdir("axe"))


@pytest.fixture(params=[("light", 1280), ("dark", 390)], ids=str)
def reader(request: pytest.FixtureRequest, browser: Browser, served: Running) -> Iterator[Visitor]:
    """Somebody signed in: in light on a desk, in dark on a phone."""
    scheme: Literal["light", "dark"] = request.param[0]
    with visitor(browser, served, scheme=scheme, width=request.param[1]) as found:
        found.sign_in(served.read_key)
        yield found


def _views(found: Visitor) -> dict[str, str]:
    """The address of each view, with the richest content there is."""
    page = found.page
    found.open("/runs")
    run = page.locator("td.r-run").get_by_role("link", name="ugly", exact=True)
    views = {
        "overview": "/",
        "runs": "/runs",
        "evidence": "/evidence",
        "gaps": "/evidence?kind=gap",
        "ingest": "/ingest",
        "projects": "/projects",
        "run": str(run.get_attribute("href")),
        "no run": "/runs/none",
    }
    found.open(views["run"])
    attempts = page.locator("td.ev-col a")
    views["conflict"] = str(attempts.nth(1).get_attribute("href"))
    views["open attempt"] = str(attempts.nth(2).get_attribute("href"))
    views["occurrence"] = str(page.locator("table.ord a").last.get_attribute("href"))
    views["events"] = f"{views['run']}/events"
    found.open("/runs")
    flood = page.locator("td.r-run").get_by_role("link", name="flood", exact=True)
    views["folded"] = str(flood.get_attribute("href"))
    found.open(views["folded"])
    whole = page.get_by_role("link", name="show all 30")
    views["all attempts"] = str(whole.get_attribute("href"))
    views["sign in"] = "/login"
    return views


def test_axe_finds_nothing_serious_on_any_view(reader: Visitor, script: str) -> None:
    """D5: landmarks, names, tables, contrast (4.5 to 1): axe-core on every view, opened up."""
    found: list[str] = []
    for name, path in _views(reader).items():
        reader.open(path)
        reader.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        found += [f"{name}: {said}" for said in axe.serious(reader.page, script)]
    assert found == []


def test_axe_itself_sees_what_is_wrong(reader: Visitor, script: str) -> None:
    """The check can fail: a picture without a name and grey on white are found."""
    reader.open("/runs")
    reader.page.evaluate(
        "() => { const i = document.createElement('img'); i.src = '/static/mark.svg';"
        " document.querySelector('main').append(i); }"
    )
    assert any("image-alt" in said for said in axe.serious(reader.page, script))


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(
    browser: Browser, served: Running
) -> None:
    """D5: the skip link first, focus seen at every stop, no trap, everything reached."""
    with visitor(browser, served) as found:
        found.sign_in(served.read_key)
        views = _views(found)
        for name in ("runs", "run", "conflict"):
            found.open(views[name])
            page = found.page
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.className") == "skip", name
            page.keyboard.press("Enter")
            assert page.evaluate("location.hash") == "#main", name
            found.open(views[name])
            stops = page.evaluate(_STOPS)
            seen: list[int] = []
            for _ in range(stops + 2):
                page.keyboard.press("Tab")
                at, visible = page.evaluate(_FOCUS)
                if at < 0:
                    break
                assert visible, (name, at)
                seen.append(at)
            assert seen == list(range(stops)), name


_REACHABLE = (
    "const all = [...document.querySelectorAll('a[href], button, input, select, summary,"
    " [tabindex=\"0\"]')].filter(e => e.checkVisibility() && e.type !== 'hidden');"
)
_STOPS = f"() => {{ {_REACHABLE} return all.length; }}"
_FOCUS = f"""() => {{ {_REACHABLE}
  const e = document.activeElement, s = getComputedStyle(e);
  return [all.indexOf(e), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]; }}"""


def test_at_twice_the_size_nothing_is_cut_off(browser: Browser, served: Running) -> None:
    """D5: 200 % zoom of a window of 1280 is one of 640: no page scrolls sideways."""
    with visitor(browser, served, width=640) as found:
        found.sign_in(served.read_key)
        for name, path in _views(found).items():
            found.open(path)
            assert _over(found.page) <= 0, name


def _over(page: Page) -> int:
    over: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return over


def test_marks_are_told_apart_in_forced_colours_and_nothing_moves_where_motion_is_unwanted(
    browser: Browser, served: Running
) -> None:
    """D5: shapes keep their strokes when colours are the system's; reduced motion has none."""
    with visitor(browser, served) as found:
        found.sign_in(served.read_key)
        run = _views(found)["run"]
        found.page.emulate_media(forced_colors="active", reduced_motion="reduce")
        found.open(run)
        strip = found.page.locator(".strip-n svg.mark")
        pictures = {one.screenshot() for one in strip.all()}
        assert len(pictures) == strip.count() == 7
        moving = found.page.evaluate(
            "[...document.querySelectorAll('*')].filter(e => {"
            " const s = getComputedStyle(e); return s.animationName !== 'none' ||"
            " s.transitionDuration.split(',').some(t => parseFloat(t) > 0); }).length"
        )
        assert moving == 0
        expect(found.page.locator(".verdict")).to_be_visible()
