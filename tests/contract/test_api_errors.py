"""What the JSON API refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import open_store
from tests.conftest import STORES
from tests.support.api import Api, told

PATHS = (
    "/runs",
    "/runs/{key}",
    "/runs/{key}/operations",
    "/runs/{key}/attempts",
    "/runs/{key}/events",
    "/operations",
    "/trace/00000000000000000000000000000002",
    "/openapi.json",
    "/no-such-path",
)


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest, new_store: Callable[[str], str]) -> str:
    """Where the backend of this file keeps its evidence."""
    return new_store(request.param)


@pytest.fixture(scope="module")
def api(store: str) -> Iterator[Api]:
    """The backend that all tests of this file read."""
    with told(store) as found:
        yield found


@pytest.fixture(scope="module")
def key(api: Api) -> str:
    """The key of one run."""
    return str(api.get("/runs")["items"][0]["key"])


@pytest.fixture(scope="module")
def stranger(api: Api, store: str) -> str:
    """A read key of another project."""
    assert api.get("/runs")["items"]
    opened = open_store(store)
    try:
        return f"Bearer {Keys(opened).create('other', 'read')[1]}"
    finally:
        opened.close()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("authorization", [None, "Bearer fmk_abc_def", "Basic x", "Bearer"])
def test_no_reading_without_a_key(api: Api, key: str, path: str, authorization: str | None) -> None:
    """Fault row 22: without a key that is known no path answers anything, whether it exists."""
    answer = api.answer(path.format(key=key), authorization)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthenticated"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", PATHS)
def test_an_ingest_key_may_not_read(api: Api, key: str, path: str) -> None:
    """Fault row 22: a key of the wrong kind is refused as such."""
    answer = api.answer(path.format(key=key), api.running.ingest)
    assert answer.status_code == 403
    assert answer.json()["error"] == {
        "code": "forbidden",
        "message": "a key of kind ingest may not read; use one of kind read",
    }


@pytest.mark.parametrize("path", [path for path in PATHS if "{key}" in path])
def test_a_foreign_run_reads_as_an_unknown_one(
    api: Api, key: str, stranger: str, path: str
) -> None:
    """I5: another project's run, no run and no key at all are answered byte for byte alike."""
    answers = {
        api.answer(path.format(key=key), stranger).content,
        api.answer(path.format(key="0" * 32), stranger).content,
        api.answer(path.format(key="0" * 32)).content,
        api.answer(path.format(key="no-key")).content,
        api.answer(path.format(key="é" * 32)).content,
    }
    assert answers == {b'{"error":{"code":"not_found","message":"no run with this key"}}'}
    assert api.answer(path.format(key=key), stranger).status_code == 404


def test_another_project_sees_nothing(api: Api, stranger: str) -> None:
    """I5: lists of another project are empty, whatever this one holds."""
    for path in ("/runs", "/operations", f"/trace/{2:032x}"):
        assert api.answer(path, stranger).json() == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"limit": "0"}, "limit: found '0'; set a whole number from 1 to 500"),
        ({"limit": "501"}, "limit: found '501'; set a whole number from 1 to 500"),
        ({"limit": "ten"}, "limit: found 'ten'; set a whole number from 1 to 500"),
        ({"limit": "²"}, "limit: found '²'; set a whole number from 1 to 500"),
        ({"status": "running"}, "set one of open, completed, failed, unknown"),
        ({"verdict": "ok"}, "set one of first_try, after_retry, failed, open, undetermined"),
        ({"problem": "any"}, "set one of gap, open, unresolved, conflict, rejected"),
        ({"origin": "phone"}, "set one of server, browser"),
        ({"has_retries": "1"}, "has_retries: found '1'; set true or false"),
        ({"min_attempts": "-1"}, "set a whole number from 1 to 9007199254740991"),
        ({"trace_id": "12"}, "set a trace id of 32 hexadecimal digits"),
        ({"since": "yesterday"}, "set an RFC 3339 time such as 2026-11-30T13:24:55Z"),
        ({"until": "2026-13-01T00:00:00Z"}, "set an RFC 3339 time"),
        ({"q": ""}, "q: found ''; set a text, or leave the parameter out"),
        ({"q": "a\0b"}, "q: found 'a\\x00b'; leave the NUL out"),
        ({"sort": "name"}, "'sort': is no parameter here; this request takes cursor, error_code"),
        ({"cursor": "abc"}, "cursor: is none that this list gave"),
        ({"cursor": "é"}, "cursor: is none that this list gave"),
        ({"cursor": "W10"}, "cursor: is none that this list gave"),
        ({"cursor": "A" * 5000}, "cursor: is none that this list gave"),
        ({"limit": "9" * 5000}, "limit: found '" + "9" * 40 + "…'; set a whole number"),
    ],
)
def test_a_wrong_parameter_is_named(api: Api, query: dict[str, str], message: str) -> None:
    """D5: a refusal names the parameter, what was found and the mend."""
    answer = api.answer("/runs", query=query)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "bad_parameter"
    assert message in answer.json()["error"]["message"]


def test_a_cursor_belongs_to_its_list(api: Api) -> None:
    """D5: a cursor of one list is refused by another, rather than read as something else."""
    cursor = api.get("/runs", limit=1)["next"]
    assert len(api.get("/runs", limit=1, cursor=cursor)["items"]) == 1
    keys = [run["key"] for run in api.get("/runs")["items"]]
    for path in (f"/runs/{keys[1]}/attempts", f"/runs/{keys[1]}/events", "/operations"):
        assert api.answer(path, query={"cursor": cursor}).status_code == 400


def test_a_parameter_given_twice(api: Api) -> None:
    """D5: which of two values counts is never a guess."""
    answer = api.answer("/runs?limit=1&limit=2")
    assert answer.json()["error"]["message"] == "limit: is given twice; give it once"


def test_a_bad_trace_id(api: Api) -> None:
    """D5: a trace id in the path is checked like any parameter."""
    answer = api.answer("/trace/xyz")
    assert answer.status_code == 400
    assert "trace_id: found 'xyz'" in answer.json()["error"]["message"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_wrong_method(api: Api, method: str) -> None:
    """Fault row 19: another method is answered in the same form, with what is allowed."""
    answer = api.answer("/runs", method=method)
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "wrong_method"
    assert answer.headers["allow"] == "GET, HEAD, DELETE"


def test_a_wrong_path(api: Api) -> None:
    """D5: a path that does not exist says where those are named that do."""
    answer = api.answer("/nothing/here")
    assert answer.status_code == 404
    assert "/api/v1/openapi.json" in answer.json()["error"]["message"]


def test_answers_are_not_kept_or_guessed_at(api: Api) -> None:
    """Security: answers are typed, are not sniffed and stay in no cache, errors too."""
    for path in ("/runs", "/nothing"):
        headers = api.answer(path).headers
        assert headers["content-type"] == "application/json"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("since", "found"),
    [
        ("1969-12-31T23:59:59Z", 3),
        ("2026-01-01T00:00:00.123456789+23:59", 3),
        ("9999-12-31T23:59:59.999999999Z", 0),
        ("2300-01-01t00:00:00z", 0),
    ],
)
def test_times_at_the_edge(api: Api, since: str, found: int) -> None:
    """D5: every RFC 3339 time is a bound, however far away."""
    assert len(api.get("/runs", since=since)["items"]) == found
