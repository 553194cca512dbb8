"""The dashboard's addresses over a real store: who may see what, and with which headers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from flowmark_otel import names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.sessions import LIFETIME, Sessions
from flowmark_otel.backend.store import open_store, schema
from flowmark_otel.backend.views import jsonable
from flowmark_otel.dashboard.headers import HEADERS
from flowmark_otel.dashboard.session import COOKIE
from flowmark_otel.errors import Unauthenticated
from flowmark_otel.model import Principal, Span
from tests.support.loop import loop_thread
from tests.support.site import ACME, HERE, Site

TRACE = bytes(range(16))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site on a store of its own."""
    with loop_thread() as loop:
        made = Site(tmp_path / "store.db", loop)
        yield made
        made.close()


def _attempt(number: int, *, failed: bool = False, run: str = "r1", trace: bytes = TRACE) -> Span:
    start = 1_773_234_004_000_000_000 + number * 2_000_000_000
    return Span(
        trace_id=trace,
        span_id=bytes((number,)) * 8,
        name="push-to-crm",
        start_time_unix_nano=start,
        end_time_unix_nano=start + 1_000_000_000,
        failed=failed,
        attributes={
            names.WORKFLOW_NAME: "crm.sync",
            names.RUN_ID: run,
            names.ATTEMPT_GROUP_ID: "customer-batch-42",
            names.ATTEMPT_NUMBER: number,
        },
    )


def test_a_retry_is_seen_from_the_list_to_its_events(site: Site) -> None:
    """A9, D5: list, run and events of a run that failed, was tried again and completed."""
    site.send(_attempt(1, failed=True), _attempt(2))
    client, key = site.signed_in(), site.run_key()
    listed = client.get("/runs").text
    assert f'href="{ACME}/runs/{key}"' in listed
    assert "1 failed, a later attempt is known, 2 completed" in listed
    shown = client.get(f"/runs/{key}").text
    assert "needed 2 attempts" in shown
    assert "No run recorded." in shown
    events = client.get(f"/runs/{key}/events").text
    for event in site.reader.events(site.project_id, key).items:
        assert event.event_id in events
    assert f"/runs/{key}/attempt?" in shown


def test_every_page_has_its_json(site: Site) -> None:
    """D5: the .json sibling of a page is the API's answer and no second format."""
    site.send(_attempt(1, failed=True), _attempt(3))
    client, key, project = site.signed_in(), site.run_key(), site.project_id
    reader = site.reader
    for path, answer in (
        ("/runs.json", reader.runs(project)),
        (f"/runs/{key}.json", reader.run(project, key)),
        (f"/runs/{key}/attempts.json", reader.attempts(project, key)),
        (f"/runs/{key}/operations.json", reader.operations(project, key)),
        (f"/runs/{key}/events.json", reader.events(project, key)),
    ):
        assert client.get(path).json() == jsonable(answer), path
    for page in ("/runs", f"/runs/{key}", f"/runs/{key}/events"):
        assert f"{page}.json" in client.get(page).text


def test_the_trace_door_leads_to_the_run_or_lists_the_runs(site: Site) -> None:
    """A17, D5: one run is opened, several are listed, none is not found."""
    client = site.signed_in()
    door = f"/trace/{TRACE.hex()}"
    assert client.get(door).status_code == 404
    site.send(_attempt(1))
    answer = client.get(door)
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{ACME}/runs/{site.run_key()}"
    site.send(_attempt(2, run="r2"))
    listed = client.get(door)
    assert listed.status_code == 200
    assert listed.text.count('class="r-run id"') == 2
    assert client.get("/trace/nonsense").status_code == 400


def test_an_empty_store_shows_lines_that_work_against_this_server(site: Site) -> None:
    """D5: the first start names this very server's address; with evidence it is gone."""
    text = site.signed_in().get("/runs").text
    assert "Nothing received yet" in text
    assert "curl http://127.0.0.1/v1/traces" in text
    assert "Authorization: Bearer fmk_" in text
    site.send(_attempt(1))
    assert "Nothing received yet" not in site.signed_in().get("/runs").text


def test_filters_choose_and_refuse(site: Site) -> None:
    """D5: filters are read from the address; a value that none can have is refused with a word."""
    site.send(_attempt(1, failed=True), _attempt(2))
    client = site.signed_in()
    assert "push-to-crm" in client.get("/runs?verdict=after_retry&min_attempts=2").text
    assert "No run matches these filters." in client.get("/runs?min_attempts=3").text
    for bad in ("status=maybe", "min_attempts=x", "min_attempts=-1", "cursor=nonsense"):
        answer = client.get(f"/runs?{bad}")
        assert answer.status_code == 400, bad
        assert client.get(f"/runs.json?{bad}").json()["error"]["code"] == "bad_parameter"


def test_another_projects_run_reads_like_none(site: Site) -> None:
    """A17 (fault row 22): a foreign key is answered as an unknown one, on every address."""
    site.send(_attempt(1), project="other")
    client, foreign = site.signed_in(), site.run_key("other")
    for path in ("/runs/{}", "/runs/{}.json", "/runs/{}/events", "/runs/{}/attempts.json"):
        answers = [client.get(path.format(key)) for key in (foreign, "00" * 16)]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].text == answers[1].text
    assert client.get(f"/trace/{TRACE.hex()}").status_code == 404


def test_without_a_session_every_page_leads_to_the_sign_in_and_back(site: Site) -> None:
    """D5: no page, no JSON and no hint without a session; static files need none."""
    client = site.client()
    for path in ("/runs?q=a", "/runs/abc", "/runs/abc/events", f"/trace/{TRACE.hex()}"):
        answer = client.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=%2F")
        assert answer.text == ""
    assert client.get("/runs.json").status_code == 401
    assert client.get("/static/dashboard.css").status_code == 200
    back = client.get("/runs?q=a").headers["location"]
    form = client.get(back).text
    assert 'name="next" value="/runs?q=a"' in form
    answer = client.post("/login", data={"key": site.read_key, "next": "/runs?q=a"}, headers=HERE)
    assert answer.headers["location"] == "/runs?q=a"


def test_the_session_cookie_is_out_of_reach(site: Site) -> None:
    """D5: HttpOnly, SameSite=Strict, Secure under TLS; it is not the key and holds none of it."""
    for url, secure in (("http://127.0.0.1", False), ("https://flowmark.example", True)):
        client = site.client(url=url)
        answer = client.post("/login", data={"key": site.read_key}, headers=HERE)
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert ("Secure" in cookie) is secure
        assert site.read_key.rpartition("_")[2] not in cookie


def test_only_a_read_key_signs_in(site: Site) -> None:
    """D5 (fault row 22): wrong, empty, ingest and revoked keys are refused alike."""
    client = site.client()
    key_id, revoked = site.keys.create("acme", names.KEY_READ)
    site.keys.revoke(key_id)
    for key in ("", "fmk_x_y", site.ingest_key, revoked):
        answer = client.post("/login", data={"key": key}, headers=HERE)
        assert answer.status_code == 403
        assert "Not accepted: this is no read key of this server." in answer.text
        assert COOKIE not in answer.cookies
    assert client.post("/login", content=b"x" * 20_000, headers=HERE).status_code == 413


def test_a_session_ends_by_signing_out_by_time_and_with_its_key(site: Site) -> None:
    """D5: what ended a session is felt at once, whoever still holds the cookie."""
    client = site.signed_in()
    kept = client.cookies[COOKIE]
    assert client.post("/logout", headers=HERE).headers["location"] == "/login"
    client.cookies.set(COOKIE, kept)
    assert client.get("/runs").status_code == 303

    late = site.signed_in()
    site.clock.ahead += LIFETIME + 1
    assert late.get("/runs").status_code == 303

    revoked = site.signed_in()
    assert revoked.get("/runs").status_code == 200
    site.keys.revoke(site.read_key_id)
    assert revoked.get("/runs").status_code == 303
    assert revoked.get("/runs.json").status_code == 401


def test_a_foreign_page_can_neither_sign_in_nor_out(site: Site) -> None:
    """D5 (forged requests): posts are judged by Sec-Fetch-Site, by Origin where it is absent."""
    client = site.signed_in()
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
        assert client.post("/logout", headers=headers).status_code == 403
        sent = client.post("/login", data={"key": site.read_key}, headers=headers)
        assert sent.status_code == 403
    assert client.get("/runs").status_code == 200
    assert client.post("/logout", headers={"origin": "http://127.0.0.1"}).status_code == 303


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x", "/a\nb"]
)
def test_signing_in_leads_to_no_other_site(site: Site, target: str) -> None:
    """D5: the way back is a path of this server."""
    sent = {"key": site.read_key, "next": target}
    answer = site.client().post("/login", data=sent, headers=HERE)
    assert answer.headers["location"] == "/"


def test_a_link_from_another_site_goes_one_step_inside(site: Site) -> None:
    """D5: the strict cookie is kept back on links from a trace viewer; one reload brings it."""
    door = f"/trace/{TRACE.hex()}"
    answer = site.client().get(door, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    assert f'content="0; url={door}"' in answer.text


def test_every_answer_has_the_security_headers(site: Site) -> None:
    """D5: policy, nosniff, no referrer, no framing, no store: on pages, JSON, errors, files."""
    site.send(_attempt(1))
    client, key = site.signed_in(), site.run_key()
    paths = ["/", "/runs", "/runs.json", f"/runs/{key}", f"/runs/{key}.json", "/runs/none"]
    paths += [f"/runs/{key}/events", f"/trace/{TRACE.hex()}", "/login", "/static/dashboard.css"]
    paths += ["/static/none", "/static/%2e%2e/app.py"]
    for path in paths:
        found = client.get(path).headers
        for name, value in HEADERS.items():
            assert found[name] == value, (path, name)
    assert "script-src 'self'" in HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_where_nobody_needs_a_key_nobody_signs_in(site: Site) -> None:
    """D5: under --insecure-no-auth the pages open at once and offer no sign-out."""
    site.send(_attempt(1))
    anyone = Principal(site.project_id, "acme", names.KEY_READ)
    client = site.client(anyone)
    text = client.get("/runs").text
    assert "crm.sync" in text
    assert "Sign out" not in text
    assert client.get("/login").headers["location"] == "/"


def test_large_runs_are_paged(site: Site) -> None:
    """D5: a page holds fifty groups and fifty ordinary occurrences or few more, and a way on."""
    spans = []
    for index in range(60):
        span = _attempt(1, trace=bytes((index + 1,)) * 16)
        grouped = {**span.attributes, names.ATTEMPT_GROUP_ID: f"g{index}", names.ATTEMPT_NUMBER: 2}
        plain = {
            names.WORKFLOW_NAME: "crm.sync",
            names.RUN_ID: "r1",
            names.OPERATION_NAME: f"plain-{index}",
        }
        spans.append(span._replace(attributes=grouped, span_id=b"attempt" + bytes((index,))))
        spans.append(span._replace(attributes=plain, span_id=b"without" + bytes((index,))))
    site.send(*spans)
    client, key = site.signed_in(), site.run_key()
    text = client.get(f"/runs/{key}").text
    assert text.count('class="group-h"') == 50
    assert "More groups" in text
    found = {name for name in (f"plain-{n}<" for n in range(60)) if name in text}
    assert 50 <= len(found) <= 60


def test_a_guessed_cookie_is_no_open_door(site: Site) -> None:
    """D5: a cookie that nobody gave leaves the pages closed."""
    client = site.client()
    for guess in ("guessed", "", "session/", "%"):
        client.cookies.set(COOKIE, guess)
        assert client.get("/runs").status_code == 303


def test_a_session_holds_for_every_process_on_the_store_until_it_ends(site: Site) -> None:
    """D5: signed in at one process, read at another; signed out at one, out at all."""
    other_store = open_store(site.url, clock=site.clock)
    try:
        other = Sessions(other_store, Keys(other_store))
        client = site.signed_in()
        cookie = client.cookies[COOKIE]
        assert other.principal(cookie).project == "acme"
        other.close(cookie)
        assert client.get("/runs").status_code == 303
    finally:
        other_store.close()


def test_of_too_many_sessions_the_first_to_end_makes_room(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: signing in without end fills no store; the store holds neither cookie nor key."""
    monkeypatch.setattr("flowmark_otel.backend.sessions.MOST", 3)
    sessions = Sessions(site.store, site.keys)
    tokens = []
    for _ in range(5):
        site.clock.ahead += 1
        tokens.append(sessions.open(site.read_key))
    with site.store.engine.connect() as connection:
        kept = [str(tuple(row)) for row in connection.execute(select(schema.meta))]
    assert sum("session/" in row for row in kept) == 3
    assert not any(secret in row for row in kept for secret in (*tokens, site.read_key))
    for token in tokens[:2]:
        with pytest.raises(Unauthenticated):
            sessions.principal(token)
    assert [sessions.principal(token).kind for token in tokens[2:]] == [names.KEY_READ] * 3


def test_what_cannot_be_ended_now_is_not_said_to_have_ended(site: Site) -> None:
    """Fault row 4: signing out of a store that cannot be written is 503, and the cookie stays."""
    client = site.signed_in()
    site.store.write(lambda c: c.exec_driver_sql("PRAGMA busy_timeout = 20").close()).result(30)
    with closing(sqlite3.connect(site.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = client.post("/logout", headers=HERE)
    assert answer.status_code == 503
    assert "set-cookie" not in answer.headers
    assert client.get("/runs").status_code == 200
    assert client.post("/logout", headers=HERE).status_code == 303
