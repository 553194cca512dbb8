"""The run page of a real store: sentence, strip, timeline, table and JSON say the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest

from flowmark_otel import names
from flowmark_otel.dashboard.marks import BY_KIND, Kind
from tests.support import marked
from tests.support.html_page import Element, parse
from tests.support.loop import loop_thread
from tests.support.site import ACME, Site


@pytest.fixture
def site(store_url: str) -> Iterator[Site]:
    """A site on a store of its own, of each kind."""
    with loop_thread() as loop:
        made = Site(store_url, loop)
        yield made
        made.close()


def _nanoseconds(time: str) -> int:
    whole, _, fraction = time.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 10**9 + int(fraction.ljust(9, "0"))


def _kinds(group: dict[str, Any]) -> dict[str, Kind]:
    """What the JSON of a group says of each place, by its label: an oracle of its own."""
    known = {attempt["number"]: attempt for attempt in group["attempts"]}
    highest = max(*known, *group["conflicts"])
    found: dict[str, Kind] = {}
    for number in range(1, highest + 1):
        if number in group["conflicts"]:
            found[str(number)] = Kind.CONFLICT
        elif number in known:
            status = known[number]["status"]
            failed = Kind.FAILED if number == highest else Kind.SUPERSEDED
            found[str(number)] = {
                "completed": Kind.COMPLETED,
                "open": Kind.OPEN,
                "failed": failed,
            }[status]
    for first, last in group["gaps"]:
        found[str(first) if first == last else f"{first}–{last}"] = Kind.NONE
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition("–")[0])))


def _bars(row: Element) -> list[tuple[str, float, float]]:
    """The bars of a row: form, left and width in per cent."""
    return [
        (
            rect.attributes["class"].split()[0],
            float(rect.attributes["x"].rstrip("%")),
            float(rect.attributes["width"].rstrip("%")),
        )
        for rect in row.all("rect")
    ]


def _agree_on_times(group: dict[str, Any], kinds: dict[str, Kind], rows: Sequence[Element]) -> None:
    """Numbers and bars of each row are those of the JSON, on one scale."""
    times = [
        _nanoseconds(attempt[name])
        for attempt in group["attempts"]
        for name in ("started_at", "ended_at")
        if attempt[name]
    ]
    zero, extent = min(times), max(times) - min(times)
    ended: dict[int, int] = {}
    for row, label in zip(rows, kinds, strict=True):
        cells = [cell.text for cell in row.all("td")]
        [attempt] = [one for one in group["attempts"] if str(one["number"]) == label] or [None]
        bars = _bars(row)
        if attempt is None:
            assert [form for form, _, _ in bars] == ["gapbox"]
            assert cells[3:7] == ["unknown", "unknown", "unknown", "–"]
            continue
        start = _nanoseconds(attempt["started_at"])
        left = 0.6 + 94.67 * (start - zero) / extent
        assert cells[3].startswith(f"+{(start - zero) / 1e9:.2f}")
        assert cells[6].removesuffix("–") == (attempt["error"] or {"code": ""})["code"]
        before = ended.get(attempt["number"] - 1)
        if before is None:
            assert cells[5] == ("–" if label == "1" else "unknown")
        else:
            assert cells[5] == f"{(start - before) / 1e9:.2f}"
        if attempt["status"] == "open":
            assert bars == []
            [stroke] = [line for line in row.all("line") if "s-open" in line.classes]
            assert stroke.attributes["x1"] == f"{left:.2f}%"
            assert cells[4] == "unknown"
            continue
        ended[attempt["number"]] = _nanoseconds(attempt["ended_at"])
        form = {Kind.SUPERSEDED: "bar-fail", Kind.FAILED: "bar-last"}.get(kinds[label])
        form = form or {"failed": "bar-fail", "completed": "bar-ok"}[attempt["status"]]
        assert bars[0][0] == form
        assert bars[0][1] == pytest.approx(left, abs=0.01)
        assert bars[0][2] == pytest.approx(94.67 * attempt["duration_ns"] / extent, abs=0.01)
        assert cells[4].startswith(f"{attempt['duration_ns'] / 1e9:.2f}")
        assert len(bars) == (2 if kinds[label] is Kind.CONFLICT else 1)


def test_sentence_strip_timeline_table_and_json_agree_on_every_mark(site: Site) -> None:
    """A9-A11, A15-A17: one of each of the seven marks, from evidence to page, said five times."""
    key = marked.send(site)
    client = site.signed_in()
    page = parse(client.get(f"/runs/{key}").text)
    run = client.get(f"/runs/{key}.json").json()
    [group] = client.get(f"/runs/{key}/attempts.json").json()["items"]
    kinds = _kinds(group)
    assert {*kinds.values(), Kind.UNRESOLVED} == set(Kind)
    assert run["retry_of"]["resolved"] is False

    strip = page.all("div", "strip-n")[0]
    assert strip.marks() == ["unresolved", *(kind.value for kind in kinds.values())]
    spoken = [mark.attributes["aria-label"] for mark in strip.all("svg")]
    assert spoken[1:] == [BY_KIND[kind].word for kind in kinds.values()]
    assert [link.text for link in strip.all("a")] == list(kinds)

    rows = page.all("table", "att")[0].all("tbody")[0].all("tr")
    assert [row.all("td")[0].text for row in rows] == list(kinds)
    assert [row.all("td")[1].marks() for row in rows] == [[kind.value] for kind in kinds.values()]
    assert [f"#{row.attributes['id']}" for row in rows] == [
        link.attributes["href"] for link in strip.all("a")
    ]

    _agree_on_times(group, kinds, rows)
    sentence = page.all("div", "verdict")[0].text
    last = group["attempts"][-1]
    assert group["verdict"] == run["status"] == "failed"
    assert sentence == (
        f"Failed. {group['operation']} for {group['group_id']} failed in the end: attempt"
        f" {last['number']}, the highest known, with {last['error']['code']}. At least"
        f" {run['counts']['attempts']} attempts: 1 gap, 1 open and 1 conflict are in the evidence."
    )
    lost = sum(attempt["duration_ns"] for attempt in group["attempts"][:2])
    assert f"time lost at least {(lost + 450_000_000 + 660_000_000) / 1e9:.2f} s" in page.text


def test_a_reference_resolves_when_its_predecessor_arrives_later(site: Site) -> None:
    """A17: unresolved text first, then a link, both ways; neither run's status changes."""
    site.send(marked.run("after", "before"))
    client, key = site.signed_in(), site.run_key(run_id="after")
    early = parse(client.get(f"/runs/{key}").text)
    assert "unresolved: crm.sync / before" in early.text
    assert not any("before" in link.text for link in early.all("a"))
    assert early.by_id("r2") in early.all("h2")
    site.send(marked.run("before", failed=True))
    target = site.run_key(run_id="before")
    late = parse(client.get(f"/runs/{key}").text)
    [link] = [link for link in late.all("a") if link.text == "crm.sync / before"]
    assert link.attributes["href"] == f"{ACME}/runs/{target}"
    assert late.all("div", "verdict")[0].text.startswith("Completed.")
    back = parse(client.get(f"/runs/{target}").text)
    assert any(link.attributes["href"] == f"{ACME}/runs/{key}" for link in back.all("a"))
    assert back.all("div", "verdict")[0].text.startswith("Failed.")


def test_the_same_group_in_another_run_is_named_with_its_mend(site: Site) -> None:
    """A3: two runs that may be one piece of work: each names the other, and nothing is merged."""
    site.send(marked.attempt(1, 0, 1, "E"), marked.attempt(2, 2, 3))
    other = {names.RUN_ID: "torn-off"}
    site.send(marked.attempt(3, 4, 5, span=9, **other))
    client = site.signed_in()
    keys = [site.run_key(run_id=run) for run in ("ugly", "torn-off")]
    for key, there in (keys, keys[::-1]):
        facts = parse(client.get(f"/runs/{key}").text).all("p", "facts-line")[0]
        assert "the same group id occurs in 1 other run" in facts.text
        assert "set flowmark.workflow.name and flowmark.run.id alike" in facts.text
        assert [link.attributes["href"] for link in facts.all("a")] == [f"{ACME}/runs/{there}"]
