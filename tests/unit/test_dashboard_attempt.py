"""The evidence of an attempt: its events, both sides of a conflict, two attempts compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus

import pytest

from flowmark_otel import names
from flowmark_otel.backend.views import rfc3339
from tests.support import marked
from tests.support.html_page import Element, parse
from tests.support.loop import loop_thread
from tests.support.site import ACME, Browser, Site

VIEWER = "https://traces.example/trace/{trace_id}?span={span_id}"
ASKED = f"operation={marked.PUSH}&group_id={marked.GROUP}"


@pytest.fixture
def site(store_url: str) -> Iterator[Site]:
    """A site on a store of its own, of each kind."""
    with loop_thread() as loop:
        made = Site(store_url, loop)
        yield made
        made.close()


def _page(client: Browser, key: str, asked: str) -> Element:
    answer = client.get(f"/runs/{key}/attempt?{asked}")
    assert answer.status_code == 200, answer.text
    return parse(answer.text)


def _compared(table: Element) -> dict[str, tuple[str, ...]]:
    """Each field of a comparison: what both sides say, and what of it is marked."""
    return {
        row.all("th")[0].text: (*(cell.text for cell in row.all("td")), *row.classes)
        for row in table.all("tbody")[0].all("tr")
    }


def test_every_row_of_a_run_leads_to_the_evidence_of_its_attempt(site: Site) -> None:
    """A9: from the table to the events in one step; the address names the attempt."""
    key = marked.send(site)
    client = site.signed_in()
    run = parse(client.get(f"/runs/{key}").text)
    ways = [link.attributes["href"] for link in run.all("a") if "/attempt?" in str(link.attributes)]
    begin = f"{ACME}/runs/{key}/attempt?{ASKED}&number="
    assert ways == [f"{begin}{number}" for number in (1, 2, 5, 6, 7)]
    for way in ways:
        assert parse(client.get(way).text).all("h1")[0].text == (
            f"Attempt {way.rpartition('=')[2]} of {marked.GROUP}"
        )


def test_events_are_shown_with_ids_times_digests_attributes_and_the_trace_viewer(
    site: Site,
) -> None:
    """A9: event and arrival time, digest, raw attributes, trace and span with the viewer's link."""
    key = marked.send(site)
    client = site.signed_in(VIEWER)
    page = _page(client, key, f"{ASKED}&number=1")
    events = [
        event
        for event in site.reader.events(site.project_id, key).items
        if event.span_id == "0000000000000001"
    ]
    assert len(events) == 2
    table = page.all("table", "events")[0]
    for event in events:
        sent, received = (rfc3339(time or 0) for time in (event.sent_at, event.received_at))
        times = [time.attributes["datetime"] for time in table.all("time")]
        assert sent in times
        assert received in times
        for said in (event.event_id, event.event, event.digest, event.trace_id, event.span_id):
            assert said in page.text
        for name, value in event.attributes.items():
            assert name in page.text
            assert str(value).lower() in page.text.lower()
    hrefs = [link.attributes["href"] for link in page.all("a")]
    trace = marked.TRACE.hex()
    assert f"https://traces.example/trace/{trace}?span=0000000000000001" in hrefs
    assert f"{ACME}/trace/{trace}" in hrefs
    without = _page(site.signed_in(), key, f"{ASKED}&number=1")
    assert "in the trace viewer" not in without.text


def test_a_conflict_shows_both_records_side_by_side(site: Site) -> None:
    """A6: accepted and rejected record field by field, those that differ marked, and why."""
    key = marked.send(site)
    page = _page(site.signed_in(), key, f"{ASKED}&number=2")
    assert page.all("div", "verdict")[0].text.startswith(
        "Conflict. Two operation ids claim attempt 2 of this group."
    )
    fields = _compared(page.all("table", "cmp")[0])
    assert fields["Operation id"] == ("0" * 15 + "2", "0" * 15 + "8", "≠ differs", "d")
    assert fields["State"] == ("Failed", "Completed", "≠ differs", "d")
    assert fields["Started"][2:] == ("≠ 10.0 ms later", "d")
    assert fields["Took"] == ("740 ms", "600 ms", "≠ 140 ms less", "d")
    assert fields["Error code"] == ("CRM_TIMEOUT", "none", "≠ differs", "d")
    assert fields["Limit"] == ("8", "8", "same")
    assert fields["Decision"] == ("stored", "rejected: conflict", "≠ differs", "d")
    decisions = [
        row.all("td")[0] for row in page.all("table", "events")[0].all("tbody")[0].all("tr")
    ]
    assert [cell.marks() for cell in decisions].count(["conflict"]) == 2
    assert "accepted with another operation id" in decisions[-1].text


def test_one_event_with_two_digests_is_two_records(site: Site) -> None:
    """A6, A8: the same span folded with another outcome: both are shown, one stays."""
    site.send(marked.attempt(1, 0, 1, "E"))
    site.send(marked.attempt(1, 0, 1.5))
    key = site.run_key()
    page = _page(site.signed_in(), key, f"{ASKED}&number=1")
    assert "Records that differ claim attempt 1" in page.text
    fields = _compared(page.all("table", "cmp")[0])
    assert fields["Operation id"] == ("0" * 15 + "1", "0" * 15 + "1", "same")
    assert fields["State"][:2] == ("Failed", "Completed")


def test_two_attempts_are_compared_in_attributes_and_error(site: Site) -> None:
    """A9: by default with the attempt before, else with the one that the address names."""
    system: dict[str, Any] = {names.ATTEMPT_SYSTEM_NAME: "crm-2.example"}
    site.send(
        marked.attempt(1, 0, 1, "CRM_UNAVAILABLE"),
        marked.attempt(2, 2, 3.5, "CRM_TIMEOUT", **system),
        marked.attempt(3, 5, 6, **system),
    )
    client, key = site.signed_in(), site.run_key()
    page = _page(client, key, f"{ASKED}&number=3")
    assert page.by_id("x2").text == "Compared with attempt 2"
    fields = _compared(page.all("table", "cmp")[0])
    assert fields["Error code"] == ("CRM_TIMEOUT", "none", "≠ differs", "d")
    assert fields["Idle before"] == ("1.00 s", "1.50 s", "≠ 500 ms more", "d")
    assert fields["System"] == ("crm-2.example", "crm-2.example", "same")
    other = _page(client, key, f"{ASKED}&number=3&with=1")
    assert other.by_id("x2").text == "Compared with attempt 1"
    fields = _compared(other.all("table", "cmp")[0])
    assert fields["System"] == ("none", "crm-2.example", "≠ differs", "d")
    [form] = other.all("form", "choose")
    kept = {one.attributes["name"]: one.attributes["value"] for one in form.all("input")}
    assert kept == {"of": f"{ASKED}&number=3", "with": "1"}
    chosen = client.get(f"{form.attributes['action']}?of={quote_plus(kept['of'])}&with=2")
    assert chosen.headers["location"] == f"{ACME}/runs/{key}/attempt?{ASKED}&number=3&with=2"
    assert not _page(client, key, f"{ASKED}&number=1").all("table", "cmp")


def test_a_gap_says_what_implies_it_and_its_neighbours(site: Site) -> None:
    """A10: nothing is invented: a number without evidence has a page that says so."""
    key = marked.send(site)
    page = _page(site.signed_in(), key, f"{ASKED}&number=4")
    assert page.all("div", "verdict")[0].text.startswith(
        "No evidence. Nothing was received of these numbers; attempt 5 implies them."
    )
    around = page.all("nav", "pn")[0]
    assert around.text == "Attempt 2: conflictAttempt 5: open"
    current = [link.text for link in page.all("a") if link.attributes.get("aria-current") == "page"]
    assert current == [] or "3–4" in current


def test_an_ordinary_occurrence_has_its_evidence_too(site: Site) -> None:
    """A4, A9: an operation without an attempt is found by its id, and is no attempt."""
    plain = marked.attempt(1, 0, 1)._replace(
        attributes={**marked.RUN, names.OPERATION_NAME: "load", names.OPERATION_ID: "a & b"}
    )
    site.send(plain)
    client, key = site.signed_in(), site.run_key()
    [way] = [
        link.attributes["href"]
        for link in parse(client.get(f"/runs/{key}").text).all("a")
        if "/occurrence?" in str(link.attributes)
    ]
    assert way == f"{ACME}/runs/{key}/occurrence?operation_id={quote_plus('a & b')}"
    page = parse(client.get(way).text)
    assert page.all("h1")[0].text == "Occurrence a & b"
    assert "recorded without an attempt number" in page.text
    assert len(page.all("table", "events")[0].all("tbody")[0].all("tr")) == 2


def test_its_json_is_the_events_as_the_api_gives_them(site: Site) -> None:
    """D5: the .json sibling has no format of its own: the same objects as ``/events``."""
    key = marked.send(site)
    client = site.signed_in()
    every = {
        (event["event_id"], event["digest"]): event
        for event in client.get(f"/runs/{key}/events.json").json()["items"]
    }
    page = _page(client, key, f"{ASKED}&number=2")
    [way] = [link.attributes["href"] for link in page.all("a") if "JSON" in link.text]
    answer = client.get(way).json()
    assert answer["next"] is None
    assert len(answer["items"]) == 4
    for event in answer["items"]:
        assert every[event["event_id"], event["digest"]] == event


def test_what_is_not_there_is_not_found_and_a_bad_address_says_what_is_wrong(site: Site) -> None:
    """A17, D5: unknown group, number above the highest, foreign run: 404; half an address: 400."""
    key = marked.send(site)
    site.send(marked.attempt(1, 0, 1), project="other")
    client = site.signed_in()
    foreign = site.run_key("other")
    for path in (
        f"{key}/attempt?operation=x&group_id=y&number=1",
        f"{key}/attempt?operation=%00&group_id=y&number=1",
        f"{key}/attempt?{ASKED}&number=8",
        f"{key}/attempt?{ASKED}&number=1&with=99",
        f"{key}/occurrence?operation_id=none",
        f"{foreign}/attempt?{ASKED}&number=1",
    ):
        assert client.get(f"/runs/{path}").status_code == 404, path
        assert client.get(f"/runs/{path.replace('?', '.json?')}").status_code in (404, 200), path
    for path, said in (
        (f"{key}/attempt?group_id=y&number=1", "operation: is missing"),
        (f"{key}/attempt?{ASKED}", "number: is missing"),
        (f"{key}/attempt?{ASKED}&number=two", "number: found"),
        (f"{key}/attempt?{ASKED}&number=0", "number: found"),
        (f"{key}/attempt?{ASKED}&number=1&with=x", "with: found"),
        (f"{key}/occurrence", "operation_id: is missing"),
    ):
        answer = client.get(f"/runs/{path}")
        assert answer.status_code == 400, path
        assert said in answer.text
    assert site.client().get(f"/runs/{key}/attempt?{ASKED}&number=1").status_code == 303


def test_the_longest_names_lead_to_their_evidence_and_compare(site: Site) -> None:
    """D5: an address is never cut as text is: 200 characters of four bytes are 2,400 of it."""
    operation, group = "\U0001f600" * 198 + "\n&", "\U0001f600" * 128
    named: dict[str, Any] = {names.OPERATION_NAME: operation, names.ATTEMPT_GROUP_ID: group}
    site.send(marked.attempt(1, 0, 1, "E", **named), marked.attempt(2, 2, 3, **named))
    client, key = site.signed_in(), site.run_key()
    page = parse(client.get(f"/runs/{key}").text)
    ways = [
        link.attributes["href"] for link in page.all("a") if "/attempt?" in str(link.attributes)
    ]
    assert [client.get(way).status_code for way in ways] == [200, 200]
    second = parse(client.get(ways[1]).text)
    [form] = second.all("form", "choose")
    of = form.all("input")[0].attributes["value"]
    chosen = client.get(f"{form.attributes['action']}?of={quote_plus(of)}&with=1")
    assert "Compared with attempt 1" in client.get(chosen.headers["location"]).text
