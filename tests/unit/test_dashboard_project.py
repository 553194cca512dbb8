"""Overview, lists and ingest over a real store: what a page says is what its JSON says."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from grpc import channel_ready_future, insecure_channel as channel

from flowmark_otel import names
from flowmark_otel.backend.api.parameters import EVIDENCE_FILTERS, RUN_FILTERS
from flowmark_otel.backend.views import EvidenceItem, Page
from flowmark_otel.dashboard import lists, words
from flowmark_otel.dashboard.pages import evidence
from flowmark_otel.dashboard.pages.frame import Frame
from flowmark_otel.dashboard.pages.ingest import ingest_page
from flowmark_otel.dashboard.pages.overview import overview_page
from flowmark_otel.dashboard.pages.plain import EmptyPage, LoginPage
from flowmark_otel.dashboard.ranges import Range
from flowmark_otel.dashboard.render import render
from flowmark_otel.testing import FakeClock
from tests.support import day, project_views as views
from tests.support.commands import invoke
from tests.support.html_page import Element, parse
from tests.support.loop import loop_thread
from tests.support.server import options, running

LARGEST = 300_000
"""Bytes of a page."""


class Site:
    """The pages of a server that asks for no key."""

    def __init__(self, http: str) -> None:
        self._base = f"http://{http}"

    def get(self, path: str) -> requests.Response:
        """The answer to a GET."""
        return requests.get(f"{self._base}{path}", timeout=30)

    def page(self, path: str) -> Element:
        """A page as elements."""
        answer = self.get(path)
        assert answer.status_code == requests.codes.ok, answer.text
        assert len(answer.content) < LARGEST
        return parse(answer.text)

    def json(self, page: Element) -> Any:
        """What the footer's link to the JSON leads to."""
        (link,) = [one for one in page.all("a") if one.text == "This page as JSON"]
        return self.get(link.attributes["href"]).json()

    def rows(self, path: str) -> list[dict[str, str]]:
        """A table as CSV."""
        answer = self.get(path)
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert answer.headers["content-disposition"].endswith('.csv"')
        return list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that looks at the last hours of the simulated day."""
    path = tmp_path_factory.mktemp("project") / "day.db"
    with loop_thread() as loop:
        day.fill(path, loop, hours=14)
    with running(options(path, insecure_no_auth=True, retain=86_400), FakeClock(day.NOW)) as found:
        yield Site(found.http)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Site]:
    """A server that nothing was sent to."""
    with running(options(tmp_path / "store.db", insecure_no_auth=True)) as found:
        yield Site(found.http)


def _rate(rate: Any) -> str:
    undecided = f", {rate['undecided']:,} undecided" if rate["undecided"] else ""
    of = f"{rate['numerator']:,}/{rate['denominator']:,}{undecided}"
    return f"{words.percent(rate['numerator'], rate['denominator'])} {of}"


def _table(section: Element) -> dict[str, str]:
    rows = section.all("tbody")[0].all("tr")
    return {row.all("th")[0].text: row.all("td")[0].text for row in rows}


def test_numbers_of_the_overview_are_those_of_its_json(site: Site) -> None:
    """A16, E4: runs, operations, attempts apart, each rate with its own denominator."""
    page = site.page("/")
    view = site.json(page)
    runs, operations, attempts = page.all("div", "trio")[0].all("section")
    statuses, verdicts = view["statuses"], view["figures"]["verdicts"]
    figures = view["figures"]
    for section, number in ((runs, view["runs"]), (operations, figures["operations"])):
        assert section.all("p", "fig")[0].all("b")[0].text == f"{number:,}"
    assert _table(runs) == {
        word: f"{statuses[status]:,}" for status, word in words.RUN_STATUSES.items()
    }
    assert list(_table(operations).values()) == [
        f"{verdicts[verdict]:,}" for verdict in words.VERDICTS
    ]
    errors = figures["attempt_errors"]
    assert list(_table(attempts).values()) == [
        f"{errors['denominator'] - errors['numerator']:,}",
        f"{errors['numerator']:,}",
        f"{errors['undecided']:,}",
    ]
    assert errors["undecided"] > 0
    assert _rate(errors) in attempts.text
    assert _rate(figures["operation_errors"]) in operations.text
    least = "at least " if figures["amplification"]["at_least"] else ""
    assert f"Amplification{least}{figures['attempts'] / figures['groups']:.2f}" in attempts.text
    assert words.lasted(figures["time_lost_ns"]) in attempts.text
    problems = page.by_id("c2")
    assert problems.text == "Evidence problems"
    counts = [row.all("b")[0].text for row in page.all("table", "ev")[0].all("tbody")[0].all("tr")]
    assert counts == [f"{view['problems'][kind]:,}" for kind in evidence.KINDS]


def test_operations_and_buckets_of_the_overview_are_those_of_its_json(site: Site) -> None:
    """E4: by time lost, the most first; each bar of the chart is a line of its table."""
    page = site.page("/")
    view = site.json(page)
    rows = page.all("table", "ops")[0].all("tbody")[0].all("tr")
    assert len(rows) == len(view["operations"]) > 3
    lost = [each["figures"]["time_lost_ns"] for each in view["operations"]]
    assert lost == sorted(lost, reverse=True)
    for row, each in zip(rows, view["operations"], strict=True):
        cells = [cell.text for cell in row.all("td")]
        assert row.all("a")[0].text == each["operation"]
        assert cells[0] == f"{each['figures']['operations']:,}"
        shown = each["figures"]["operation_errors"]
        assert cells[4] == _rate(shown).replace("% ", "%", 1)
        if each["figures"]["groups"]:
            spread = (each["attempts_p50"], each["attempts_p95"], each["attempts_max"])
            assert cells[2] == " / ".join(map(str, spread))
            assert cells[6].startswith(words.lasted(each["figures"]["time_lost_ns"]))
        if each["top_error"]:
            assert cells[7].startswith(each["top_error"]["code"])
    lines = page.all("details")[0].all("tbody")[0].all("tr")
    assert len(lines) == len(view["buckets"]) == 24
    for line, bucket in zip(lines, view["buckets"], strict=True):
        extra = bucket["figures"]["extra_attempts"]
        assert [cell.text for cell in line.all("td")][:2] == [
            f"{extra['numerator']:,}",
            f"{extra['denominator']:,}",
        ]


def test_two_clicks_lead_from_the_overview_to_the_evidence_of_an_attempt(site: Site) -> None:
    """A9, E4: what failed in an operation, then an attempt that failed with it: its event ids."""
    [*rows] = site.page("/").all("table", "ops")[0].all("tbody")[0].all("tr")
    clicked = 0
    for row in rows:
        operation = row.all("th")[0].all("a")[0].text
        for way in row.all("td")[7].all("a"):
            for run in site.page(way.attributes["href"]).all("tr")[1:]:
                for strip in run.all("a", "way"):
                    [number, code] = strip.all("span", "tell")[0].text.split(" ")[1:]
                    shown = site.page(strip.attributes["href"])
                    assert f"Attempt {number} of" in shown.all("h1")[0].text
                    assert operation in shown.all("ol", "crumbs")[0].text
                    assert shown.all("table", "events")[0].all("code", "wrap-any")
                    if code == way.text:
                        assert code in shown.all("div", "verdict")[0].text
                        clicked += 1
                    break
                break
    assert clicked > 3


def test_evidence_is_grouped_by_service_and_says_what_implies_it(site: Site) -> None:
    """A10, A17: every kind with its items, their number by service, and a list behind each."""
    page = site.page("/evidence")
    found: Counter[tuple[str, str]] = Counter()
    for kind in evidence.KINDS:
        items = site.get(f"/evidence.json?kind={kind}").json()["items"]
        found.update((item["service"], kind) for item in items)
        heading = page.by_id(kind)
        assert heading.text
    assert {kind for _, kind in found} >= {"gap", "open", "conflict", "rejected"}
    lines = page.all("table", "mat")[0].all("tbody")[0].all("tr")
    for line in lines:
        service = line.all("th")[0].text
        cells = line.all("td")
        assert [cell.text for cell in cells] == [
            f"{found[service, kind]:,}" for kind in evidence.KINDS
        ]
        for cell, kind in zip(cells, evidence.KINDS, strict=True):
            for link in cell.all("a"):
                listed = site.page(link.attributes["href"])
                rows = listed.all("table", "evt")[0].all("tbody")[0].all("tr")
                assert f"{len(rows):,}" == cell.text, kind
    for kind in ("gap", "open", "conflict"):
        listed = site.page(f"/evidence?kind={kind}").all("table", "evt")[0].all("tbody")[0]
        way = listed.all("tr")[0].all("td")[0].all("a")[0]
        assert "Attempt" in site.page(way.attributes["href"]).all("h1")[0].text, kind
    gaps = site.page("/evidence?kind=gap").all("table", "evt")[0].all("tbody")[0].all("tr")
    items = site.get("/evidence.json?kind=gap").json()["items"]
    for row, item in zip(gaps, items, strict=True):
        number = item["number"]
        assert row.text.startswith(f"attempt {number}attempt {number + 1} was received")
        assert item["run"]["key"] in row.all("a")[-1].attributes["href"]


def test_every_table_of_a_run_is_csv_as_well(site: Site) -> None:
    """D5: attempts with gaps among them, occurrences, events, rates: what the JSON has."""
    key = site.get("/runs.json?problem=gap").json()["items"][0]["key"]
    page = site.page(f"/runs/{key}")
    [run] = site.rows(f"/runs/{key}.csv")
    assert (run["key"], run["counts_attempts"]) == (
        key,
        str(site.get(f"/runs/{key}.json").json()["counts"]["attempts"]),
    )
    groups = site.get(f"/runs/{key}/attempts.json").json()["items"]
    rows = site.rows(f"/runs/{key}/attempts.csv")
    of_groups = [
        (group["group_id"], str(attempt["number"]), attempt["operation_id"])
        for group in groups
        for attempt in group["attempts"]
    ]
    known = [row for row in rows if row["attempt_number"]]
    assert [
        (row["group_id"], row["attempt_number"], row["attempt_operation_id"]) for row in known
    ] == of_groups
    gaps = [(row["first"], row["last"]) for row in rows if row["state"] == "no evidence"]
    assert gaps == [(str(a), str(b)) for group in groups for a, b in group["gaps"]] != []
    for name, field in (("operations", "operation_id"), ("events", "event_id")):
        items = site.get(f"/runs/{key}/{name}.json").json()["items"]
        assert [row[field] for row in site.rows(f"/runs/{key}/{name}.csv")] == [
            item[field] for item in items
        ]
    rates = site.get(f"/runs/{key}/rates.json").json()["items"]
    assert [
        (row["operation"], row["time_lost_ns"]) for row in site.rows(f"/runs/{key}/rates.csv")
    ] == [(rate["operation"], str(rate["time_lost_ns"])) for rate in rates]
    ways = {link.attributes["href"] for link in page.all("a") if link.text in ("CSV", "JSON")}
    assert {f"/runs/{key}/{name}.csv" for name in ("rates", "attempts")} <= ways
    asked = f"operation={groups[0]['operation']}&group_id={groups[0]['group_id']}"
    for view in (f"group?{asked}", f"attempt?{asked}&number=1", "events"):
        [way] = [
            link.attributes["href"]
            for link in site.page(f"/runs/{key}/{view}").all("a")
            if link.text == "As CSV"
        ]
        assert site.rows(way)
    for name in ("attempts", "operations", "events", "rates"):
        assert site.get(f"/runs/{'0' * 32}/{name}.csv").status_code == 404


def test_lists_as_csv_are_the_whole_list(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: every table as CSV, page after page, with a column for each field of the JSON."""
    monkeypatch.setattr(lists, "MAX_LIMIT", 7)
    runs = site.rows("/runs.csv?min_attempts=2")
    keys = []
    path = "/runs.json?min_attempts=2"
    while path:
        answer = site.get(path).json()
        keys += [run["key"] for run in answer["items"]]
        path = f"/runs.json?min_attempts=2&cursor={answer['next']}" if answer["next"] else ""
    assert [row["key"] for row in runs] == keys
    assert len(keys) > 20
    first = site.get("/runs.json?min_attempts=2").json()["items"][0]
    assert runs[0]["counts_attempts"] == str(first["counts"]["attempts"])
    assert runs[0]["started_at"] == first["started_at"]
    items = site.get("/evidence.json?kind=rejected").json()["items"]
    rejected = site.rows("/evidence.csv?kind=rejected")
    assert [row["says"] for row in rejected] == [item["says"] for item in items]
    view = site.json(site.page("/"))
    operations = site.rows("/overview.csv?last=24h&table=operations")
    assert [row["operation"] for row in operations] == [
        one["operation"] for one in view["operations"]
    ]
    buckets = site.rows("/overview.csv?last=24h&table=buckets&buckets=24")
    assert [row["figures_operations"] for row in buckets] == [
        str(one["figures"]["operations"]) for one in view["buckets"]
    ]
    ingest = site.get("/ingest.json").json()
    assert len(site.rows("/ingest.csv?table=senders")) == len(ingest["senders"])
    assert [row["count"] for row in site.rows("/ingest.csv?table=events")] == [
        str(one["count"]) for one in ingest["events"]
    ]


@pytest.mark.parametrize(
    ("path", "class_"), [("/evidence?kind=gap", "evt"), ("/runs?min_attempts=4", "runs")]
)
def test_pages_of_a_list_follow_each_other_without_a_gap(
    site: Site, monkeypatch: pytest.MonkeyPatch, path: str, class_: str
) -> None:
    """D5: "Older" leads through the whole list once; "Latest" and "Newest" back to its begin."""
    whole = site.rows(path.replace("?", ".csv?"))
    monkeypatch.setattr(lists, "_ITEMS", 2)
    monkeypatch.setattr(lists, "_RUNS", 2)
    seen = 0
    address = path
    pages = 0
    while address:
        page = site.page(address)
        seen += len(page.all("table", class_)[0].all("tbody")[0].all("tr"))
        links = {one.text: one.attributes["href"] for one in page.all("nav", "pager")[0].all("a")}
        assert (links.get("Latest") or links.get("Newest")) == (path if pages else None)
        address = links.get("Older", "")
        pages += 1
    assert seen == len(whole)
    assert pages == -(-seen // 2) > 1


def test_ingest_adds_up_and_tells_retention(site: Site) -> None:
    """A23, D5: states add up to what was received; store, schema, age and retention are told."""
    page = site.page("/ingest")
    view = site.json(page)
    received = sum(one["count"] for one in view["events"])
    assert page.all("p", "lead")[0].text.startswith(f"{received:,} events received, ")
    shown = page.all("table")[0]
    counts = [
        int(row.all("td")[0].text.replace(",", "")) for row in shown.all("tbody")[0].all("tr")
    ]
    assert sum(counts) == received == int(shown.all("tfoot")[0].all("td")[0].text.replace(",", ""))
    assert "1 day after a run's latest arrival" in page.text
    assert view["schema"] in page.text
    assert len(page.all("table", "snd")[0].all("tbody")[0].all("tr")) == len(view["senders"])


def test_forms_offer_every_filter_of_the_api_and_keep_what_was_asked(site: Site) -> None:
    """D5: no filter needs a script; an address is the whole state of a page."""
    for path, parameters in (("/runs", RUN_FILTERS), ("/evidence", EVIDENCE_FILTERS)):
        (form,) = site.page(path).all("form", "filters")
        assert form.attributes["method"] == "get"
        controls = [*form.all("input"), *form.all("select")]
        assert {one.name for one in parameters} <= {one.attributes["name"] for one in controls}
        labels = {one.attributes["for"] for one in form.all("label")}
        assert labels == {one.attributes["id"] for one in controls}
    asked = "workflow=crm.sync&status=completed&operation=push-to-crm&last=24h&since=&until=&q="
    page = site.page(f"/runs?{asked}")
    (form,) = page.all("form", "filters")
    chosen = [one.attributes["value"] for one in form.all("option") if "selected" in one.attributes]
    assert {"completed", "24h"} <= set(chosen)
    assert "open" in form.all("details")[0].attributes
    for link in page.all("nav", "range")[0].all("a"):
        assert "workflow=crm.sync" in link.attributes["href"]
    tabs = page.all("nav", "tabs")[0].all("a")
    assert [one.attributes["href"] for one in tabs] == [
        f"{path}?last=24h" for path in ("/", "/runs", "/evidence", "/ingest")
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/?last=2h",
        "/?since=2026-03-11&until=2026-03-10",
        "/runs?last=x",
        "/runs?nonsense=1",
        "/runs?status=maybe",
        "/evidence?kind=maybe",
        "/evidence?cursor=x",
        "/ingest.csv?table=x",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_with_a_word(site: Site, path: str) -> None:
    """D5: nothing is ignored: a page and its JSON refuse alike and name the parameter."""
    answer = site.get(path)
    assert answer.status_code == requests.codes.bad_request
    assert "This address cannot be read" in answer.text


def test_the_footer_says_how_far_the_evidence_reaches(site: Site, empty: Site) -> None:
    """D5: the latest arrival and how long ago it was, on every page; none where there is none."""
    for path in ("/", "/runs", "/evidence", "/ingest"):
        foot = site.page(path).all("footer")[0].text
        assert re.match(r"Evidence up to 13:2\d:\d\dZ, .+ behind\. All times UTC\.", foot), path
        assert empty.page(path).all("footer")[0].text.startswith("No evidence yet.")


def test_an_empty_store_says_where_to_send_and_what_was_refused(empty: Site) -> None:
    """D5: this very server's addresses for both protocols; refusals are not hidden behind it."""
    page = empty.page("/")
    assert page.all("h1")[0].text == "Nothing received yet"
    blocks = {one.attributes["aria-label"]: one.text for one in page.all("pre")}
    assert "refused" not in page.text
    http = blocks["Environment"].rpartition("FLOWMARK_ENDPOINT=")[2]
    grpc = blocks["Environment of an SDK, gRPC"].rpartition("ENDPOINT=")[2]
    assert requests.get(f"{http}/healthz", timeout=10).status_code == requests.codes.ok
    with channel(grpc.removeprefix("http://")) as opened:
        channel_ready_future(opened).result(timeout=10)
    doctor = blocks["Doctor"].replace("\\", "").split()
    examined = invoke(*doctor[1:])
    assert (doctor[0], examined.exit_code) == ("flowmark-otel", 0), examined.output
    assert "failed" not in examined.output
    span = {
        "name": "push",
        "traceId": "01" * 16,
        "spanId": "02" * 8,
        "attributes": [
            {"key": names.ATTEMPT_GROUP_ID, "value": {"stringValue": "g"}},
            {"key": names.ATTEMPT_NUMBER, "value": {"stringValue": "2"}},
        ],
    }
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    assert requests.post(f"{http}/v1/traces", json=body, timeout=10).status_code == 400
    assert "2 events were sent and refused" in empty.page("/runs").text
    assert "set an integer" in empty.page("/evidence?kind=rejected").text


def test_the_commands_that_make_a_key_are_told_whole(tmp_path: Path) -> None:
    """D5: pasted with the store of the server, each makes a key of the kind that is missing."""
    store = f"sqlite:///{tmp_path / 'store.db'}"
    asks = Frame("First start", project="acme", session=True)
    start = render(EmptyPage(asks, "http://127.0.0.1:4318", keys=True, trace_id="0" * 32, spans=()))
    login = render(LoginPage(Frame("Sign in"), "/", project="acme"))
    for page, kind in ((start, "ingest"), (login, "read")):
        (told,) = {one.text for one in parse(page).all("code") if " keys create" in one.text}
        made = invoke(*told.split()[1:], "--db", store)
        assert (made.exit_code, f"--project acme --kind {kind}" in told) == (0, True), made.output
        assert "fmk_" in made.output
    anybody = parse(render(LoginPage(Frame("Sign in"), "/"))).text
    assert "keys create --project NAME --kind read" in anybody


def test_a_full_page_stays_small() -> None:
    """Issue: the most operations with the longest names in most buckets are below 300 kB."""
    view = views.overview(rows=50, name="n" * 200)
    page = overview_page(Frame("o", project="p"), view, None, Range(None, None, "24h", {}))
    assert len(render(page).encode()) < LARGEST


def test_a_duplicate_whose_run_is_gone_and_a_browser_are_said_apart() -> None:
    """A8: "expired" is a part of the duplicates; what browsers sent is named."""
    document = parse(render(ingest_page(Frame("i", project="p"), views.ingest(), None)))
    rows = {row.all("th")[0].text: row.all("td")[0].text for row in document.all("tr")[1:5]}
    assert rows["stored from browsers 10".replace(" from", "from")] == "6,012"
    assert rows["duplicateof which expired 12"] == "187"
    assert "for ever" in document.text
    assert "−1.80 / −1.10clock ahead of ours" in document.text


def test_every_reason_has_its_words() -> None:
    """A6: no conflict is told by a code."""
    for reason in ("event_id", "operation_id", "second_end", "place"):
        looked = views.item("conflict", reason=reason)
        told = evidence.Told(views.NOW, 900 * views.SECOND, {})
        page = evidence.section(
            evidence.Looked("conflict", _page(looked)), told, shown=1, whole=True
        )
        assert page.rows[0].implied != reason
        assert page.rows[0].says == looked.says
    run = replace(views.item("open"), operation=None, group_id=None, number=None)
    page = evidence.section(evidence.Looked("open", _page(run)), told, shown=1, whole=True)
    assert page.rows[0].missing.text == "the end of the run"
    assert page.rows[0].ago == "24 min 00 s"
    assert page.title == "Open longer than 15 min"


def _page(item: EvidenceItem) -> Page[EvidenceItem]:
    return Page((item,), None)
