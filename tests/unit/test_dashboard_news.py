"""New evidence is announced to an open page, by whichever process answers; nothing moves."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from flowmark_otel import dashboard, names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.sessions import Sessions
from flowmark_otel.backend.store import open_store
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope
from tests.support import marked
from tests.support.html_page import Element, parse
from tests.support.loop import loop_thread
from tests.support.site import ACME, Browser, Site


@pytest.fixture
def site(store_url: str) -> Iterator[Site]:
    """A site on a store of its own, of each kind."""
    with loop_thread() as loop:
        made = Site(store_url, loop)
        yield made
        made.close()


def _asks(client: Browser, path: str) -> Element:
    """The element of a page that asks."""
    [asking] = parse(client.get(path).text).all("div", "news")
    [link] = asking.all("a")
    assert link.text == ""
    assert link.attributes["hx-trigger"] == "every 5s"
    return link


def _poll(client: Browser, asking: Element) -> httpx.Response:
    return client.get(asking.attributes["hx-get"])


def test_a_list_announces_runs_of_its_filters_and_no_others(site: Site) -> None:
    """D5: "3 new, show"; the way shows them; a filter that lets none through stays silent."""
    site.send(marked.run("first"))
    client = site.signed_in()
    every, failed = _asks(client, "/runs"), _asks(client, "/runs?status=failed&q=")
    assert failed.attributes["href"] == f"{ACME}/runs?status=failed"
    assert [_poll(client, one).status_code for one in (every, failed)] == [204, 204]
    for number in range(3):
        site.send(marked.run(f"new-{number}"))
    assert _poll(client, every).text == "3 new, show"
    assert _poll(client, failed).status_code == 204
    site.send(marked.run("bad", failed=True))
    assert _poll(client, failed).text == "1 new, show"
    assert "new-2" in client.get(every.attributes["href"]).text
    assert _poll(client, _asks(client, "/runs")).status_code == 204


def test_a_run_announces_its_own_events_stored_and_refused(site: Site) -> None:
    """A9, A10: what arrives for the run is announced, what arrives for others is not."""
    site.send(marked.attempt(1, 0, 1, "E"))
    client, key = site.signed_in(), site.run_key()
    asking = _asks(client, f"/runs/{key}")
    assert asking.attributes["href"] == f"{ACME}/runs/{key}"
    site.send(marked.run("other"))
    assert _poll(client, asking).status_code == 204
    site.send(marked.attempt(2, 2, 3))
    assert _poll(client, asking).text == "2 new events, show"
    refused = marked.attempt(2, 2, 3, span=9)
    site.send(refused)
    assert _poll(client, asking).text == "4 new events, show"


def test_overview_and_ingest_announce_events_of_any_kind(site: Site) -> None:
    """D5: what arrived for the project since, stored and refused; a time that is over is silent."""
    site.send(marked.run("first"))
    client = site.signed_in()
    views = [_asks(client, path) for path in ("/?last=7d", "/ingest", "/?since=2026-01-01")]
    assert views[0].attributes["href"] == f"{ACME}/?last=7d"
    assert [_poll(client, one).status_code for one in views] == [204, 204, 204]
    site.send(marked.run("theirs"), project="other")
    assert [_poll(client, one).status_code for one in views] == [204, 204, 204]
    site.send(marked.attempt(2, 2, 3), marked.attempt(2, 2, 3, span=9))
    assert [_poll(client, one).text for one in views] == ["4 new events, show"] * 3
    assert "hx-get" not in client.get("/?since=2026-01-01&until=2026-01-02").text


def test_the_list_of_problems_announces_problems(site: Site) -> None:
    """A10: a gap, a conflict, an attempt that stayed open; what completes nothing is no news."""
    site.send(marked.run("first"))
    client = site.signed_in()
    every, gaps = _asks(client, "/evidence"), _asks(client, "/evidence?kind=gap")
    site.send(marked.run("second"))
    assert [_poll(client, one).status_code for one in (every, gaps)] == [204, 204]
    site.send(marked.attempt(3, 2, 3))
    assert [_poll(client, one).text for one in (every, gaps)] == ["1 new, show", "1 new, show"]
    site.send(marked.attempt(3, 2, 3, span=9))
    # Two refused events, each a conflict as well.
    assert [_poll(client, one).text for one in (every, gaps)] == ["5 new, show", "1 new, show"]
    shown = _asks(client, "/evidence?kind=open")
    [start, _] = fold_span(marked.attempt(4, 5, 6, span=12))
    assert isinstance(start, Envelope)
    site.start(start)
    assert _poll(client, shown).status_code == 204
    site.clock.ahead += 16 * 60
    assert _poll(client, shown).text == "1 new, show"
    assert _poll(client, _asks(client, "/evidence?kind=open")).status_code == 204


def test_any_process_of_the_store_answers(site: Site) -> None:
    """D5: nothing is kept between two questions: a page of one process asks another."""
    site.send(marked.run("first"))
    client = site.signed_in()
    asking = _asks(client, "/runs")
    other_store = open_store(site.url, clock=site.clock)
    try:
        routes = dashboard.routes(Reader(other_store), Sessions(other_store, Keys(other_store)))
        other = Browser(site.loop, routes, "http://127.0.0.1")
        other.cookies.update(client.cookies)
        assert _poll(other, asking).status_code == 204
        site.send(marked.run("second"))
        assert _poll(other, asking).text == "1 new, show"
    finally:
        other_store.close()


def test_very_many_are_not_counted_to_the_end(site: Site) -> None:
    """D5: a question that is asked every few seconds has a bound."""
    site.send(marked.run("first"))
    client = site.signed_in()
    asking = _asks(client, "/runs")
    site.send(
        *(
            marked.attempt(1, 0, 1, span=number, **{names.RUN_ID: f"run-{number}"})
            for number in range(1, 121)
        )
    )
    assert _poll(client, asking).text == "100 or more new, show"


def test_who_asks_without_a_session_or_with_nonsense_is_told_so(site: Site) -> None:
    """D5: no redirect that a script would put into the page; a mark that nobody gave is 400."""
    site.send(marked.run("first"))
    client, key = site.signed_in(), site.run_key()
    assert site.client().get("/runs/news?after=1").status_code == 401
    for path in ("/runs/news", "/runs/news?after=x", f"/runs/{key}/news?after=1", "/runs/news?a=1"):
        assert client.get(path).status_code == 400, path
    assert client.get(f"/runs/{'0' * 32}/news?after=1-1").status_code == 404
    assert client.get("/runs/news?after=1&nonsense=1").status_code == 400
    for path in ("/overview/news", "/ingest/news?after=-1", "/evidence/news?after=1"):
        assert client.get(path).status_code == 400, path


def test_older_pages_of_a_list_ask_nothing(site: Site) -> None:
    """D5: what is new stands on the newest page; deeper ones stay as they are, without script."""
    for number in range(21):
        site.send(marked.run(f"run-{number}"))
    client = site.signed_in()
    older = [link for link in parse(client.get("/runs").text).all("a") if link.text == "Older"]
    text = client.get(older[0].attributes["href"]).text
    assert "hx-get" not in text
    assert "htmx" not in text


def test_htmx_is_shipped_with_its_licence_and_kept_on_a_short_leash(site: Site) -> None:
    """D5: from our own files, no eval, no styles, no scripts in answers, no history, no CDN."""
    client = site.signed_in()
    site.send(marked.run("first"))
    page = parse(client.get("/runs").text)
    [settings] = [one for one in page.all("meta") if one.attributes.get("name") == "htmx-config"]
    for said in (
        '"allowEval":false',
        '"includeIndicatorStyles":false',
        '"allowScriptTags":false',
        '"historyCacheSize":0',
        '"selfRequestsOnly":true',
    ):
        assert said in settings.attributes["content"]
    scripts = [one.attributes["src"] for one in page.all("script")]
    assert all(source.startswith("/static/") for source in scripts)
    assert "/static/htmx.min.js" in scripts
    assert 'version:"2.' in client.get("/static/htmx.min.js").text
    assert "Zero-Clause BSD" in client.get("/static/htmx.LICENSE.txt").text
    for element in page.all():
        if "hx-get" in element.attributes:
            assert element.attributes["href"]


def test_the_next_page_of_the_last_hour_is_that_of_the_same_hour(site: Site) -> None:
    """D5: a cursor belongs to its time: the way to older runs names it, however late it is gone."""
    for number in range(45):
        site.send(marked.run(f"run-{number}"))
    client = site.signed_in()
    path, seen = "/runs?last=1h&status=completed", 0
    while path:
        site.clock.ahead += 600
        page = parse(client.get(path).text)
        seen += len(page.all("td", "r-run"))
        older = [link for link in page.all("a") if link.text == "Older"]
        path = older[0].attributes["href"] if older else ""
        assert "last=" not in path
    assert seen == 45


def test_the_next_page_of_the_json_of_the_last_hour_is_that_of_the_same_hour(site: Site) -> None:
    """D5: the address stays as it is, the cursor brings its time along, however late it is used."""
    for number in range(45):
        site.send(marked.run(f"run-{number}"))
    client = site.signed_in()
    cursor = ""
    seen: set[str] = set()
    for _ in range(3):
        page = client.get(f"/runs.json?last=1h&status=completed{cursor}").json()
        seen.update(run["run_id"] for run in page["items"])
        cursor = f"&cursor={page['next']}"
        site.clock.ahead += 3000
    assert page["next"] is None
    assert len(seen) == 45
    for text in ("1-2-x", "x-y-z", f"{2**64}-{2**64}-x"):
        assert client.get(f"/runs.json?last=1h&cursor={text}").status_code == 400
