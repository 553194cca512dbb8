"""Hostile telemetry in every stored field, on every view that links lead to, in Chromium."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, Request

from tests.browser import hostile
from tests.browser.conftest import Visitor, visitor
from tests.support.server import Running, options, running

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(240)]

OURS = {"/static/times.js", "/static/htmx.min.js"}
VIEWER = "https://traces.example/{trace_id}/{span_id}"
PROJECT = "/p/default"
VIEWS = ("/runs", "/", "/evidence", "/ingest", "/projects")
MOST_PAGES = 160

# What every page is asked: elements and attributes that only a sender could have brought, scripts
# that are not ours, and whether something sticks out.
LOOK = """() => ({
  foreign: [...document.querySelectorAll(
      'script:not([src]), img, style, base, iframe, object, embed, link[href^=http]')]
      .map(e => e.outerHTML.slice(0, 200)),
  handlers: [...document.querySelectorAll('*')].filter(
      e => [...e.attributes].some(a => /^(on|style$|data-hx|srcdoc|formaction)/.test(a.name)))
      .map(e => e.outerHTML.slice(0, 200)),
  asks: [...document.querySelectorAll('[hx-get]')].map(e => e.getAttribute('hx-get')),
  scripts: [...document.scripts].map(s => s.getAttribute('src')),
  links: [...document.querySelectorAll('a[href]')].map(e => e.getAttribute('href')),
  actions: [...document.querySelectorAll('form')].map(e => e.getAttribute('action')),
  over: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  h1: document.querySelectorAll('h1').length,
  mains: document.querySelectorAll('main').length,
})"""


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A backend with payloads in every field."""
    store = tmp_path_factory.mktemp("hostile") / "store.db"
    with running(options(store, trace_url=VIEWER)) as backend:
        hostile.send(backend)
        yield backend


def _shape(path: str) -> str:
    """Pages that differ in ids alone are of one shape."""
    parts = urlsplit(path)
    names = ",".join(re.findall(r"(?:^|&)(\w+)=", parts.query))
    return f"{re.sub('[0-9a-f]{32}', 'KEY', parts.path)}?{names}"


def _walk(found: Visitor, starts: list[str], of_shape: int) -> list[str]:
    """Open pages and what they link to on this server; each is looked at as it is opened.

    ``of_shape``: pages that are looked at of each view.
    """
    waiting, seen = deque(starts), set(starts)
    opened: list[str] = []
    shapes: dict[str, int] = {}
    while waiting and len(opened) < MOST_PAGES:
        path = waiting.popleft()
        answer = found.page.goto(f"{found.base}{path}")
        assert answer is not None
        assert answer.status == 200, path
        opened.append(path)
        looked = found.page.evaluate(LOOK)
        assert looked["foreign"] == [], path
        assert looked["handlers"] == [], path
        assert set(looked["scripts"]) <= OURS, path
        assert looked["over"] <= 0, (path, looked["over"])
        assert (looked["h1"], looked["mains"]) == (1, 1), path
        assert all(asked.startswith(f"{PROJECT}/") for asked in looked["asks"]), path
        assert all(action.startswith(("/logout", f"{PROJECT}/")) for action in looked["actions"]), (
            path
        )
        for link in looked["links"]:
            assert link.startswith(("/", "#", "https://traces.example/")), (path, link)
            assert not link.startswith("//"), (path, link)
            page = link.partition("#")[0]
            if not page.startswith("/") or page.endswith((".json", ".csv")):
                continue
            if re.search(r"\.(json|csv)\?", page) or page.startswith(("/logout", "/login")):
                continue
            shape = _shape(page)
            if page not in seen and shapes.get(shape, 0) < of_shape:
                shapes[shape] = shapes.get(shape, 0) + 1
                seen.add(page)
                waiting.append(page)
    return opened


@pytest.mark.parametrize(("width", "of_shape"), [(1280, len(hostile.PAYLOADS) + 4), (390, 5)])
def test_no_view_runs_loads_or_breaks_on_what_a_sender_wrote(
    browser: Browser, poisoned: Running, tmp_path: Path, width: int, of_shape: int
) -> None:
    """D5: script, attribute and address injections, controls, directions, long text: all is text.

    No dialog, no policy report, no console error, no request to elsewhere, no element or handler
    that is not ours, nothing that sticks out, on every view that a reader can reach.
    """
    with visitor(browser, poisoned, width=width) as found:
        elsewhere: list[str] = []

        def asked(request: Request) -> None:
            if urlsplit(request.url).netloc != poisoned.http:
                elsewhere.append(request.url)

        found.page.on("request", asked)
        found.sign_in(poisoned.read_key)
        opened = _walk(found, [f"{PROJECT}{view}" for view in VIEWS], of_shape)
        found.page.screenshot(path=tmp_path / f"last-{width}.png")
        kinds = {urlsplit(_shape(path)).path for path in opened}
        kinds = {kind.removeprefix(PROJECT) for kind in kinds}
        assert {*VIEWS, "/runs/KEY"} <= kinds
        assert {f"/runs/KEY/{view}" for view in ("attempt", "occurrence", "events")} <= kinds
        assert len(opened) > 40
        assert elsewhere == []
        assert found.complaints == []


def test_a_payload_in_the_address_is_text_too(browser: Browser, poisoned: Running) -> None:
    """D5: filters and paths of an address are hostile too: anyone may make a link."""
    with visitor(browser, poisoned) as found:
        found.sign_in(poisoned.read_key)
        for payload in hostile.PAYLOADS:
            for path in (
                "/runs?q={}",
                "/runs?workflow={}",
                "/trace/{}",
                "/evidence?service={}",
            ):
                found.open(path.format(quote(payload, safe="")))
                looked = found.page.evaluate(LOOK)
                assert looked["foreign"] == looked["handlers"] == [], (path, payload)
                assert looked["over"] <= 0, (path, payload)
        said = [
            complaint
            for complaint in found.complaints
            if "status of 404" not in complaint and "status of 400" not in complaint
        ]
        assert said == []
