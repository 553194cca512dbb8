"""Every route and RPC, with every kind of key and of no key (fault row 22; contract, section 4).

What is walked is what the server serves: a new route is held against the rule of its place, and
one that is open must be named here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import grpc
import pytest
import requests

from flowmark_otel import names
from flowmark_otel.backend.api.deletions import DELETIONS
from flowmark_otel.backend.api.endpoints import ENDPOINTS, PREFIX
from flowmark_otel.dashboard.session import COOKIE
from flowmark_otel.wire.pb import acceptance_pb2
from tests.support.browser_keys import PAGE
from tests.support.doors import IN_PROJECT, MARK, OURS, THEIRS, Door, Doors, doors

OPEN: Final = {
    Door("GET", "/healthz"),
    Door("GET", "/readyz"),
    Door("GET", "/login"),
    Door("POST", "/logout"),
    Door("GET", "/static"),
}
"""Health without data, the sign-in form, its files, and the way out."""

SIGN_IN: Final = Door("POST", "/login")
ASKED_BY_SCRIPTS: Final = "/news"
"""The end of what no person opens: without a session it is 401."""

EXPORTS: Final = {Door("POST", "/v1/traces"), Door("POST", "/v1/logs")}
HEALTH: Final = "/grpc.health.v1.Health/"
DELETABLE: Final = {f"{PREFIX}{one.path}" for one in DELETIONS}
READERS: Final = (names.KEY_READ, names.KEY_ADMIN)
SENDERS: Final = (names.KEY_INGEST, names.KEY_BROWSER)
UNKNOWN: Final = "0" * 32
CODE: Final = requests.codes
STATUS: Final = "/flowmark.v1.Acceptance/Status"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """The backend; its tests leave it as it was."""
    with doors(tmp_path_factory.mktemp("doors") / "store.db") as found:
        yield found


def api(served: Doors) -> list[Door]:
    """The routes of the JSON API."""
    return [door for door in served.routes if door.path.startswith(f"{PREFIX}/")]


def otlp(served: Doors) -> list[Door]:
    """The routes of senders."""
    return [door for door in served.routes if door.path.startswith("/v1/")]


def pages(served: Doors) -> list[Door]:
    """All others: what a session is for."""
    others = {*api(served), *otlp(served), *OPEN, SIGN_IN}
    return [door for door in served.routes if door not in others]


def session(served: Doors, project: str) -> dict[str, str]:
    """The cookie of somebody who signed in."""
    answer = served.sign_in(served.keys[project, names.KEY_READ])
    assert answer.status_code == CODE.see_other
    return {COOKIE: answer.cookies[COOKIE]}


def test_everything_that_is_served_is_walked(served: Doors) -> None:
    """Row 22: the walk has the endpoints that the tables of the code have, and more."""
    walked = {*api(served), *otlp(served), *pages(served), *OPEN, SIGN_IN}
    assert walked == set(served.routes)
    assert {f"{PREFIX}{one.path}" for one in ENDPOINTS} < {door.path for door in api(served)}
    assert {Door("DELETE", path) for path in DELETABLE} < set(api(served))
    assert len(otlp(served)) == 4
    assert {door.path.rpartition(".")[2] for door in pages(served)} >= {"json", "csv"}
    assert len([call for call in served.calls if not call.startswith(HEALTH)]) == 4


def test_the_api_takes_keys_for_reading(served: Doors) -> None:
    """Row 22: no good key is 401, a sender's key 403, deleting with a read key 403."""
    for door in api(served):
        for what, token in served.bad.items():
            assert served.ask(door, token).status_code == CODE.unauthorized, (door, what)
        for kind in SENDERS:
            answer = served.ask(door, served.keys[OURS, kind])
            assert answer.status_code == CODE.forbidden, (door, kind)
        if door.method == "DELETE":
            answer = served.ask(door, served.keys[OURS, names.KEY_READ])
            deletes = door.path in DELETABLE
            refused = CODE.forbidden if deletes else CODE.method_not_allowed
            if "{path:path}" in door.path:
                refused = CODE.not_found
            assert answer.status_code == refused, door
            continue
        for kind in READERS:
            answer = served.ask(door, served.keys[OURS, kind])
            there = "{path:path}" not in door.path
            assert answer.status_code == (CODE.ok if there else CODE.not_found), (door, kind)


def test_senders_need_keys_for_sending(served: Doors) -> None:
    """Row 22: no good key is 401, a reader's key 403, a browser key only from its pages."""
    for door in otlp(served):
        for what, token in served.bad.items():
            assert served.ask(door, token).status_code == CODE.unauthorized, (door, what)
        for kind in (*READERS, names.KEY_BROWSER):
            answer = served.ask(door, served.keys[OURS, kind])
            assert answer.status_code == CODE.forbidden, (door, kind)
        assert served.ask(door, served.keys[OURS, names.KEY_INGEST]).ok, door
        page = served.ask(door, served.keys[OURS, names.KEY_BROWSER], headers={"origin": PAGE})
        assert page.ok is (door in EXPORTS), door


def test_a_cookie_opens_pages_alone(served: Doors) -> None:
    """Security, "forged requests": a cookie neither sends nor reads nor deletes by the API."""
    cookies = session(served, OURS)
    for door in (*otlp(served), *api(served)):
        answer = served.ask(door, None, cookies=cookies)
        assert answer.status_code == CODE.unauthorized, door


def test_pages_need_a_session(served: Doors) -> None:
    """Row 22: without one a page leads to the sign-in and JSON is 401; a bearer key opens none."""
    cookies: list[dict[str, str]] = [{}, {COOKIE: "wrong"}]
    tokens = [None, *served.bad.values(), *served.keys.values()]
    for door in pages(served):
        for given in cookies:
            _refused(door, served.ask(door, None, cookies=given))
        for token in tokens[:3] if door.path != "/runs" else tokens:
            _refused(door, served.ask(door, token))
        mine = served.ask(door, None, cookies=session(served, OURS))
        assert mine.status_code in (CODE.ok, CODE.no_content, CODE.see_other), door
        assert not mine.headers.get("location", "").startswith("/login"), door


def _refused(door: Door, answer: requests.Response) -> None:
    if door.path.endswith((".json", ASKED_BY_SCRIPTS)):
        assert answer.status_code == CODE.unauthorized, door
    else:
        assert answer.status_code == CODE.see_other, door
        assert answer.headers["location"].startswith("/login"), door


def test_only_readers_sign_in(served: Doors) -> None:
    """Row 22: what is no key, or one for sending, gets no session, and all of them one answer."""
    bodies = set()
    for token in (*served.bad.values(), *(served.keys[OURS, kind] for kind in SENDERS)):
        answer = served.sign_in(token)
        assert (answer.status_code, answer.cookies.get(COOKIE)) == (CODE.forbidden, None)
        bodies.add(answer.text)
    assert len(bodies) == 1
    for kind in READERS:
        assert served.sign_in(served.keys[OURS, kind]).status_code == CODE.see_other


def test_every_call_needs_a_key_for_sending(served: Doors) -> None:
    """Row 22: over gRPC UNAUTHENTICATED and PERMISSION_DENIED; health alone takes no key."""
    for method in served.calls:
        if method.startswith(HEALTH):
            continue
        for what, token in served.bad.items():
            found, _ = served.call(method, token)
            assert found is grpc.StatusCode.UNAUTHENTICATED, (method, what)
        for kind in (*READERS, names.KEY_BROWSER):
            found, _ = served.call(method, served.keys[OURS, kind])
            assert found is grpc.StatusCode.PERMISSION_DENIED, (method, kind)
        assert served.call(method, served.keys[OURS, names.KEY_INGEST])[0] is grpc.StatusCode.OK
    assert served.call(f"{HEALTH}Check", None)[0] is grpc.StatusCode.OK


def test_what_is_no_key_is_refused_alike(served: Doors) -> None:
    """Row 22: an answer does not tell a wrong, an expired and a revoked key from an unknown one."""
    known = [token for what, token in served.bad.items() if what != "none"]
    for door in (api(served)[0], otlp(served)[0]):
        assert len({served.ask(door, token).text for token in known}) == 1
    assert len({served.call(served.calls[0], token)[1] for token in known}) == 1


def test_what_is_foreign_reads_unknown(served: Doors) -> None:
    """Row 22: another project's key meets nothing of ours, in the words for what nobody has."""
    theirs = session(served, THEIRS)
    admin = served.keys[THEIRS, names.KEY_ADMIN]
    for door in (*api(served), *pages(served)):
        given: dict[str, Any] = {"cookies": theirs} if door in pages(served) else {}
        token = None if given else admin
        given["project"] = THEIRS
        foreign = served.ask(door, token, **given)
        unknown = served.ask(door, token, key=UNKNOWN, trace=UNKNOWN, **given)
        said = foreign.text.replace(served.run, UNKNOWN).replace(served.trace, UNKNOWN)
        assert foreign.status_code == unknown.status_code, door
        if "{" in door.path.removeprefix(IN_PROJECT):
            assert said == unknown.text, door
        if "{key}" in door.path:
            onward = foreign.headers.get("location", "")
            missing = (CODE.not_found, CODE.method_not_allowed)
            # Without a project an address leads to that of their own, where nothing is found.
            assert foreign.status_code in missing or onward.startswith(f"/p/{THEIRS}/"), door
        assert MARK not in foreign.text, door
    ours = served.ask(Door("GET", f"{PREFIX}/runs"), served.keys[OURS, names.KEY_READ])
    assert MARK in ours.text
    assert served.run in ours.text  # it is there still


def test_a_foreign_project_reads_unknown(served: Doors) -> None:
    """Row 22: a page of a project that one has no session of is that of one that is not there."""
    theirs = session(served, THEIRS)
    inside = [door for door in pages(served) if door.path.startswith(IN_PROJECT)]
    assert len(inside) * 2 == len(pages(served))
    for door in inside:
        answers = [
            served.ask(door, None, cookies=theirs, project=name) for name in (OURS, "nowhere")
        ]
        for answer in answers:
            _refused(door, answer)
        said = [
            (answer.text, answer.headers.get("location", "").replace(name, ""))
            for answer, name in zip(answers, (OURS, "nowhere"), strict=True)
        ]
        assert said[0] == said[1], door


def test_foreign_events_read_unknown(served: Doors) -> None:
    """Row 22: the status of an event of ours is that of one that nobody sent, over both ways."""
    ids = [f"run-{1:032x}-{1:016x}-end", f"run-{99:032x}-{1:016x}-end"]
    question = acceptance_pb2.StatusRequest(event_ids=ids).SerializeToString()
    states = {}
    for project in (OURS, THEIRS):
        token = served.keys[project, names.KEY_INGEST]
        code, answer = served.call(STATUS, token, question)
        assert code is grpc.StatusCode.OK
        found = acceptance_pb2.StatusResponse.FromString(answer).events
        states[project] = [(one.state, one.digest != "") for one in found]
    assert states[OURS] == [(names.STORED, True), (names.STATE_UNKNOWN, False)]
    assert states[THEIRS] == [(names.STATE_UNKNOWN, False)] * 2


def test_a_cursor_of_others_leads_nowhere_else(served: Doors) -> None:
    """Row 22: where a list of ours goes on, theirs has nothing of ours."""
    door = Door("GET", f"{PREFIX}/runs?limit=1")
    cursor = served.ask(door, served.keys[OURS, names.KEY_READ]).json()["next"]
    assert cursor is not None
    going_on = Door("GET", f"{PREFIX}/runs?limit=1&cursor={cursor}")
    assert served.ask(going_on, served.keys[OURS, names.KEY_READ]).json()["items"]
    theirs = served.ask(going_on, served.keys[THEIRS, names.KEY_READ])
    assert theirs.json() == {"items": [], "next": None}
