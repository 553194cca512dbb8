"""The door of the dashboard: wrong keys are paced, one browser may look at several projects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from flowmark_otel import dashboard, names
from flowmark_otel.backend.sessions import Sessions
from flowmark_otel.dashboard import pace
from flowmark_otel.dashboard.pace import Pace
from flowmark_otel.dashboard.session import COOKIE
from flowmark_otel.listen.hosts import is_loopback_name
from tests.support import marked
from tests.support.html_page import parse
from tests.support.loop import loop_thread
from tests.support.server import options, running
from tests.support.site import ACME, HERE, Browser, MovedClock, Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site on a store of its own."""
    with loop_thread() as loop:
        made = Site(tmp_path / "store.db", loop)
        yield made
        made.close()


def test_wrong_keys_of_one_address_are_paced_and_others_go_on(site: Site) -> None:
    """D5: the eleventh wrong key waits, says how long, and even a right one does; others do not."""
    routes = dashboard.routes(site.reader, Sessions(site.store, site.keys), clock=site.clock)
    url = "http://127.0.0.1"
    first, second = (Browser(site.loop, routes, url, f"192.0.2.{number}") for number in (1, 2))
    for _ in range(pace.OF_ADDRESS):
        assert first.post("/login", data={"key": "fmk_x_y"}, headers=HERE).status_code == 403
    refused = first.post("/login", data={"key": site.read_key}, headers=HERE)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) in range(1, 61)
    page = parse(refused.text)
    assert page.all("h1")[0].text == "Too many tries"
    assert f"Try again in {refused.headers['retry-after']} second" in page.text
    assert "set-cookie" not in refused.headers
    assert second.post("/login", data={"key": site.read_key}, headers=HERE).status_code == 303
    site.clock.ahead += int(refused.headers["retry-after"])
    assert first.post("/login", data={"key": site.read_key}, headers=HERE).status_code == 303


def test_all_addresses_together_are_paced_and_one_network_is_one_visitor() -> None:
    """D5: many addresses wait for each other at last; a /64 of IPv6 counts as one visitor."""
    clock = MovedClock()
    paced = Pace(clock)
    for number in range(pace.OF_ADDRESS):
        assert paced.wait(f"2001:db8::{number}") == 0
        paced.wrong(f"2001:db8::{number}")
    assert paced.wait("2001:db8::ffff") > 0
    assert paced.wait("2001:db8:0:1::1") == 0
    for number in range(pace.OF_ALL):
        paced.wrong(f"10.{number // 250}.{number % 250}.1")
    assert paced.wait("203.0.113.9") > 0
    clock.ahead += 60
    assert paced.wait("203.0.113.9") == paced.wait("2001:db8::1") == 0


def test_of_very_many_addresses_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: whoever has many addresses fills no memory."""
    monkeypatch.setattr(pace, "MOST_ADDRESSES", 3)
    monkeypatch.setattr(pace, "OF_ADDRESS", 1)
    paced = Pace(MovedClock())
    for number in range(5):
        paced.wrong(f"192.0.2.{number}")
    assert len(paced._addresses) == 3
    assert [paced.wait(f"192.0.2.{number}") > 0 for number in range(5)] == [
        *(False, False),
        *(True, True, True),
    ]


def test_one_browser_looks_at_several_projects_and_switches(site: Site) -> None:
    """D5: a session for each project, the last opened is shown, a switch is one link."""
    _, other_key = site.keys.create("other <b>", names.KEY_READ)
    site.send(marked.run("ours"))
    site.send(marked.run("theirs"), project="other <b>")
    client = site.signed_in()
    assert "ours" in client.get("/runs").text
    client.post("/login", data={"key": other_key}, headers=HERE)
    text = client.get("/runs").text
    assert "theirs" in text
    assert "ours" not in text
    page = parse(client.get("/projects").text)
    assert [one.text for one in page.all("ul", "projects")[0].all("b")] == ["other <b>", "acme"]
    [way] = page.all("ul", "projects")[0].all("a")
    assert "Nothing received yet" not in client.get(way.attributes["href"]).text
    text = client.get(way.attributes["href"] + "runs").text
    assert "ours" in text
    assert "theirs" not in text


def test_an_address_names_its_project_for_whoever_opens_it(site: Site) -> None:
    """D5: what is in the address bar can be shared: it is of one project, whatever is looked at."""
    _, other_key = site.keys.create("a/b <%2F>", names.KEY_READ)
    site.send(marked.run("ours"))
    site.send(marked.run("theirs"), project="a/b <%2F>")
    client = site.signed_in()
    client.post("/login", data={"key": other_key}, headers=HERE)
    theirs = client.ask("/runs?q=theirs").headers["location"]
    assert theirs == "/p/a%252Fb%2520%253C%25252F%253E/runs?q=theirs"
    for path, run in ((theirs, "theirs"), (f"{ACME}/runs", "ours")):
        page = parse(client.get(path).text)
        assert [cell.all("a")[0].text for cell in page.all("td", "r-run")] == [run]
        own = path.partition("/runs")[0]
        for element in page.all():
            for name in ("href", "action", "hx-get"):
                way = element.attributes.get(name, "")
                outside = way.startswith(("/static/", "#")) or way in ("", "/logout")
                assert outside or way.startswith(f"{own}/"), way
        rows = client.get(f"{own}/runs.json").json()["items"]
        assert [row["run_id"] for row in rows] == [run]


def test_an_address_without_a_project_finds_the_one_that_has_its_run(site: Site) -> None:
    """D5: a run or a trace is looked for in all of the reader's projects, the last opened first."""
    _, other_key = site.keys.create("other", names.KEY_READ)
    site.send(marked.run("ours"))
    client = site.signed_in()
    client.post("/login", data={"key": other_key}, headers=HERE)
    key = site.run_key()
    assert client.ask(f"/runs/{key}").headers["location"] == f"{ACME}/runs/{key}"
    assert client.ask("/runs/none").headers["location"] == "/p/other/runs/none"
    assert client.ask("/").headers["location"] == "/p/other/"


def test_a_foreign_project_is_answered_as_one_that_is_not_there(site: Site) -> None:
    """Row 22: the address of a project that one has not signed in to tells nothing of it."""
    site.keys.create("foreign", names.KEY_READ)
    site.send(marked.run("theirs"), project="foreign")
    key, client = site.run_key("foreign"), site.signed_in()
    for path in ("/", "/runs", "/runs.json", "/runs.csv", f"/runs/{key}", f"/runs/{key}.json"):
        answers = [client.ask(f"/p/{name}{path}") for name in ("foreign", "nowhere")]
        assert {answer.status_code for answer in answers} <= {303, 401}, path
        said = [
            (one.status_code, one.text, one.headers.get("location", "").replace(name, "N"))
            for one, name in zip(answers, ("foreign", "nowhere"), strict=True)
        ]
        assert said[0] == said[1]
    form = client.get(client.ask("/p/foreign/runs").headers["location"]).text
    assert "The address is of project <b" in form
    assert client.ask(f"{ACME}/runs/{key}").status_code == 404


def test_signing_in_again_replaces_and_signing_out_ends_all(site: Site) -> None:
    """D5: one session for each project; out means out of all of them, whoever holds the cookie."""
    _, other_key = site.keys.create("other", names.KEY_READ)
    client = site.signed_in()
    first = client.cookies[COOKIE]
    client.post("/login", data={"key": other_key}, headers=HERE)
    client.post("/login", data={"key": site.read_key}, headers=HERE)
    assert len(client.cookies[COOKIE].split(".")) == 2
    stolen = site.client()
    stolen.cookies.set(COOKIE, first)
    assert stolen.get("/runs").status_code == 303
    both = client.cookies[COOKIE]
    client.post("/logout", headers=HERE)
    stolen.cookies.set(COOKIE, both)
    assert stolen.get("/runs").status_code == 303


def test_where_one_session_ended_the_others_go_on(site: Site) -> None:
    """D5: a revoked key ends its session alone; a cookie stuffed with guesses opens nothing."""
    key_id, other_key = site.keys.create("other", names.KEY_READ)
    client = site.signed_in()
    client.post("/login", data={"key": other_key}, headers=HERE)
    site.keys.revoke(key_id)
    assert "<b>acme</b>" in client.get("/runs").text
    assert len(parse(client.get("/projects").text).all("ul", "projects")[0].all("li")) == 1
    guessed = site.client()
    guessed.cookies.set(COOKIE, ".".join(["x"] * 50))
    assert guessed.get("/runs").status_code == 303


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1:4318", True),
        ("127.8.9.1", True),
        ("localhost", True),
        ("LocalHost.:80", True),
        ("app.localhost:4318", True),
        ("[::1]:4318", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:4318", False),
        ("10.0.0.1", False),
        ("[", False),
        ("", False),
    ],
)
def test_which_names_are_those_of_loopback(host: str, *, loopback: bool) -> None:
    """D5: names that only begin or end like a loopback one are foreign."""
    assert is_loopback_name(host) is loopback


def test_without_keys_pages_and_api_answer_under_loopback_names_only(tmp_path: Path) -> None:
    """D5 (DNS rebinding): a page of another site whose name leads here reads and writes nothing."""
    with running(options(tmp_path / "store.db", insecure_no_auth=True)) as backend:
        base = f"http://{backend.http}"
        port = backend.http.rpartition(":")[2]
        for path in ("/", "/runs", "/runs.json", "/static/dashboard.css", "/api/v1/runs"):
            rebound = requests.get(
                f"{base}{path}", headers={"host": f"evil.example:{port}"}, timeout=20
            )
            assert rebound.status_code == 403, path
            assert "names of loopback only" in rebound.text
            assert requests.get(f"{base}{path}", timeout=20).status_code == 200, path
        named = {"host": f"localhost:{port}"}
        assert requests.get(f"{base}/runs", headers=named, timeout=20).status_code == 200
        sent: dict[str, list[str]] = {"resourceSpans": []}
        behind = {"host": "collector.internal:4318"}
        assert requests.post(f"{base}/v1/traces", json=sent, headers=behind, timeout=20).ok
        page = {**behind, "origin": "http://collector.internal:4318"}
        refused = requests.post(f"{base}/v1/traces", json=sent, headers=page, timeout=20)
        assert refused.status_code == 403


def test_with_keys_any_name_is_served(tmp_path: Path) -> None:
    """D5: behind a name of one's own nothing is refused: there a key is asked for."""
    with running(options(tmp_path / "store.db")) as backend:
        headers = {"host": "flowmark.example", "authorization": backend.read}
        answer = requests.get(f"http://{backend.http}/api/v1/runs", headers=headers, timeout=20)
        assert answer.status_code == 200
