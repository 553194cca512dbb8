"""Contexts to HTML: the run page's sentence, strip, timeline and table agree with the views."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from flowmark_otel import names
from flowmark_otel.backend.views import (
    Amplification,
    GroupView,
    Page,
    Rate,
    RetryOf,
    RunLink,
    RunView,
)
from flowmark_otel.dashboard.marks import BY_KIND, Kind
from flowmark_otel.dashboard.pages import frame
from flowmark_otel.dashboard.pages.events import events_page
from flowmark_otel.dashboard.pages.figures import Share, figures
from flowmark_otel.dashboard.pages.frame import Frame
from flowmark_otel.dashboard.pages.group import group_page
from flowmark_otel.dashboard.pages.run import Answered, Asked, run_page
from flowmark_otel.dashboard.pages.runs import runs_page
from flowmark_otel.dashboard.render import render
from tests.support import run_views as views
from tests.support.html_page import Element, parse

_FRAME = Frame("run", project="acme")


def _run(
    *groups: GroupView,
    run: RunView | None = None,
    asked: Asked | None = None,
    following: str | None = None,
) -> Element:
    answered = Answered(
        run or views.run(), Page(groups, following), operations=(views.statistics(),)
    )
    return parse(render(run_page(_FRAME, answered, asked)))


def _rows(document: Element) -> list[Element]:
    return document.all("table", "att")[0].all("tbody")[0].all("tr")


def test_sentence_strip_timeline_and_table_agree_on_every_mark() -> None:
    """A9-A11: one of each mark; what the sentence says is what strip, bars and table show."""
    document = _run(views.every_mark())
    expected = ["superseded", "conflict", "none", "open", "completed", "failed"]
    strip = document.all("div", "strip-n")[0]
    assert strip.marks() == ["unresolved", *expected]
    assert [one.attributes["aria-label"] for one in strip.all("svg")][1:] == [
        BY_KIND[Kind(kind)].word for kind in expected
    ]
    rows = _rows(document)
    assert [row.all("td")[1].marks()[0] for row in rows] == expected
    assert [row.all("td")[0].text for row in rows] == ["1", "2", "3–4", "5", "6", "7"]
    assert [link.attributes["href"] for link in strip.all("a")] == [
        f"#{row.attributes['id']}" for row in rows
    ]
    drawn = [[*row.all("rect"), *row.all("path")] for row in rows]
    forms = [" ".join(shape.attributes["class"] for shape in shapes) for shapes in drawn]
    for form, wanted in zip(
        forms, ("bar-fail", "bar-ok", "gapbox", "s-open", "bar-ok", "bar-last"), strict=True
    ):
        assert wanted in form
    verdict = document.all("div", "verdict")[0]
    assert verdict.marks() == ["failed"]
    assert verdict.text == (
        "Failed. push-to-crm for customer-batch-42 failed in the end: attempt 7, the highest"
        " known, with CRM_DUPLICATE_BATCH. At least 22 attempts: 1 gap, 1 open and 1 conflict are"
        " in the evidence."
    )


def test_numbers_of_the_table_are_the_times_of_the_views() -> None:
    """A9, A10: starts, durations and idle times as sent; what is not known says so."""
    cells = [[cell.text for cell in row.all("td")[3:7]] for row in _rows(_run(views.every_mark()))]
    assert cells == [
        ["+0.00", "0.60", "–", "CRM_UNAVAILABLE"],
        ["+1.05 +1.06".replace(" ", ""), "0.740.60", "0.45", "CRM_TIMEOUT–"],
        ["unknown", "unknown", "unknown", "–"],
        ["+5.31", "unknown", "unknown", "–"],
        ["+8.40", "0.84", "unknown", "–"],
        ["+9.90", "0.31", "0.66", "CRM_DUPLICATE_BATCH"],
    ]


def test_completed_after_retry_is_said_with_the_number_of_attempts() -> None:
    """A9: the story of issue and demo: failed, tried again, completed."""
    group = views.group((views.attempt(1, 0, 1, "E"), views.attempt(2, 2, 3)), "after_retry")
    counts = replace(views.run().counts, attempts=2)
    document = _run(group, run=views.run("completed", counts=counts, error=None))
    assert document.all("div", "verdict")[0].text == (
        "Completed after retry. push-to-crm for customer-batch-43 needed 2 attempts."
    )
    assert document.all("div", "strip-n")[0].all("a")[0].text == "1"


@pytest.mark.parametrize(
    ("status", "lead", "mark"),
    [
        ("open", "Open: no end received.", "open"),
        ("unknown", "No run recorded.", "none"),
        ("completed", "Completed.", "completed"),
    ],
)
def test_a_run_wears_its_own_status_whatever_its_attempts_did(
    status: names.RunStatus, lead: str, mark: str
) -> None:
    """A11, A15: a failure never colours its ancestors; open is no proof of work."""
    verdict = _run(views.every_mark(), run=views.run(status)).all("div", "verdict")[0]
    assert verdict.text.startswith(lead)
    assert verdict.marks() == [mark]


def test_a_zero_time_and_a_missing_start_read_differently() -> None:
    """A10: "time unknown" where the event had no time, "not received" where there is no event."""
    zero = views.attempt(2, 1, 2)
    zero = replace(zero, started_at=None, duration_ns=None)
    group = views.group((views.attempt(1, None, 1, "E"), zero), "after_retry")
    starts = [row.all("td")[3].text for row in _rows(_run(group))]
    assert starts == ["not received", "time unknown"]


def test_an_end_before_its_start_and_an_overlap_are_written_out() -> None:
    """A10: times are raw: nothing is reordered or corrected."""
    reversed_ = replace(views.attempt(1, 2, 1, "E"), duration_ns=None)
    group = views.group((reversed_, views.attempt(2, 0.5, 3)), "after_retry")
    first, second = _rows(_run(group))
    assert first.all("td")[4].text == "end 1.00 before start"
    assert second.all("td")[5].text == "overlap 0.50"


def test_a_long_group_is_folded_and_can_be_shown_whole() -> None:
    """A9: every occurrence can be reached: a fold names its number and leads to all rows."""
    document = _run(views.flood(30))
    rows = _rows(document)
    assert len(rows) == 9
    folded = rows[2]
    assert folded.all("td")[0].text == "3–24"
    assert "22 more failed" in folded.text
    (way,) = folded.all("a")
    named = "operation=push-to-crm&group_id=customer-batch-44"
    assert way.attributes["href"] == f"/runs/{views.KEY}/group?{named}"
    assert way.text == "show all 30"
    whole = parse(render(group_page(_FRAME, views.run(), views.flood(30), 0)))
    assert len(_rows(whole)) == 30
    assert [row.all("td")[0].text for row in _rows(whole)] == [str(n) for n in range(1, 31)]


def test_all_attempts_of_a_large_group_are_shown_a_hundred_at_a_time() -> None:
    """A9: a thousand attempts: each is on one page, drawn on one scale, with a way on and back."""
    seen: list[str] = []
    path = f"/runs/{views.KEY}/group?operation=push-to-crm&group_id=customer-batch-44"
    for at in range(0, 1000, 100):
        html = render(group_page(_FRAME, views.run(), views.flood(1000), at))
        assert len(html) < 300_000
        page = parse(html)
        seen += [row.all("td")[0].text for row in _rows(page)]
        ways = [link.attributes["href"] for link in page.all("nav", "pager")[0].all("a")]
        before = [path] if at == 100 else [f"{path}&at={at - 100}"]
        after = [f"{path}&at={at + 100}"]
        assert ways == (before if at else []) + (after if at < 900 else [])
        assert page.all("table", "att")[0].all("thead")[0].all("text")[-1].text == "1500"
    assert seen == [f"{number:,}" for number in range(1, 1001)]
    beyond = parse(render(group_page(_FRAME, views.run(), views.flood(1000), 5000)))
    assert _rows(beyond)[-1].all("td")[0].text == "1,000"


def test_a_group_of_nothing_but_gaps_stays_a_page() -> None:
    """A10: gaps are never folded, so of a thousand the first are shown and the rest is a way."""
    odd = tuple(views.attempt(number, number, number + 0.5, "E") for number in range(1, 2000, 2))
    holes = tuple((number, number) for number in range(2, 1999, 2))
    html = render(
        run_page(
            _FRAME,
            Answered(views.run(), Page((replace(views.group(odd, "failed"), gaps=holes),), None)),
        )
    )
    assert len(html) < 300_000
    document = parse(html)
    assert len(_rows(document)) == 100
    [rest] = document.all("p", "rest")
    assert rest.text == "1,899 more"
    assert "/group?" in rest.all("a")[0].attributes["href"]


def test_an_unresolved_reference_is_text_and_a_resolved_one_a_link() -> None:
    """A17-A19: predecessor, successors and parents; what is not stored leaks nothing."""
    cells = _run(views.every_mark()).by_id("r2")
    assert cells.text == "Retry references"
    section = _run(
        run=views.run(
            retry_of=RetryOf("crm.sync", "before", resolved=True, key="ef" * 16),
            parent_run_id="nightly",
            parents=(RunLink("a", "nightly", "aa" * 16), RunLink("b", "nightly", "bb" * 16)),
        )
    )
    links = {link.text: link.attributes["href"] for link in section.all("a")}
    assert links["crm.sync / before"] == f"/runs/{'ef' * 16}"
    assert links["a / nightly"] == f"/runs/{'aa' * 16}"
    assert links["b / nightly"] == f"/runs/{'bb' * 16}"
    unresolved = _run()
    assert "unresolved: crm.sync / sync-0310-2300" in unresolved.text
    assert not any("sync-0310-2300" in link.text for link in unresolved.all("a"))


def test_counts_stand_apart_and_results_are_reported_items() -> None:
    """A16, E4: each number on its own, each rate with its fraction and what is undecided."""
    text = _run(views.every_mark()).text
    assert "Occurrences Attempts Failed attempts Groups Operations" in text.replace(
        "OccurrencesAttemptsFailed attemptsGroupsOperations",
        "Occurrences Attempts Failed attempts Groups Operations",
    )
    for said in ("81.0% 17/21, 1 undecided", "25.0% 1/4", "at least 5.50 22/4", "at least 29.0 s"):
        assert said in text
    assert "Items as this run reported them; never added across runs." in text


def test_a_rate_on_a_run_is_written_as_on_the_overview() -> None:
    """E4, A16: nought and all without decimals; no rate is made up where there are no attempts."""
    none = Rate(0, 0, 0)
    plain = replace(
        views.statistics(),
        attempts=0,
        groups=0,
        attempt_errors=none,
        operation_errors=Rate(0, 4, 0),
        amplification=Amplification(0, 0, 0, at_least=False),
        time_lost_ns=0,
    )
    (row,) = figures([plain])
    assert [row.attempt_errors, row.amplification] == [Share("–", ""), Share("–", "")]
    assert (row.operation_errors, row.time_lost) == (Share("0%", "0/4"), "–")
    long = replace(views.statistics(), time_lost_ns=4_380 * 10**9, operation_errors=Rate(4, 4, 0))
    (row,) = figures([long])
    assert (row.operation_errors.text, row.time_lost) == ("100%", "at least 1 h 13 min")


def test_the_error_of_a_refused_record_stands_below_that_of_the_accepted_one() -> None:
    """A6, A9: a conflict of two failures shows both codes."""
    group = views.every_mark()
    failed = replace(
        views.rejected(2, names.OPERATION_FAILED, 1.66), attributes={names.ERROR_CODE: "CRM_LATE"}
    )
    row = _rows(_run(replace(group, rejected=(failed,))))[1]
    assert row.all("td", "er-col")[0].text == "CRM_TIMEOUTCRM_LATE"


def test_many_other_runs_of_a_group_id_are_folded() -> None:
    """A3: a group id that every run uses is one line; the runs and the mend are behind it."""
    keys = tuple(f"{number:032x}" for number in range(20))
    group = replace(views.every_mark(), elsewhere=keys, elsewhere_count=4_999)
    page = _run(group)
    (more,) = page.all("details", "also")
    summary = more.all("summary")[0].text
    assert summary == "the same group id occurs in 4,999 other runs, the latest 20"
    assert len(more.all("a")) == 20
    assert "set flowmark.workflow.name and flowmark.run.id alike" in more.text
    assert "other runs" not in page.all("p", "facts-line")[0].text


def test_groups_of_the_same_name_elsewhere_are_shown_and_never_merged() -> None:
    """A3: the page says where the same group id occurs and how to mend it, and merges nothing."""
    text = _run(views.every_mark()).all("p", "facts-line")[0].text
    assert "the same group id occurs in 1 other run: fedcba987654…; runs are never merged" in text
    assert "flowmark.run.id" in text


@pytest.mark.parametrize(
    ("count", "at_least", "said"),
    [
        (1, False, "also in 1 other run"),
        (4999, False, "also in 4,999 other runs, the latest 1"),
        (10_000, True, "also in 10,000 or more other runs, the latest 1"),
    ],
)
def test_a_group_completed_at_first_try_says_where_else_it_occurs(
    count: int, said: str, *, at_least: bool
) -> None:
    """A3: a group torn apart into runs of one try each reads so on each of them, with the mend."""
    quiet = views.group((views.attempt(1, 0, 1),), "first_try", "quiet")
    torn = replace(
        quiet,
        elsewhere=("fedcba98765432100123456789abcdef",),
        elsewhere_count=count,
        elsewhere_at_least=at_least,
    )
    document = _run(torn, replace(quiet, group_id="whole"))
    first, second = document.all("table", "ord")[0].all("tbody")[0].all("tr")
    (way,) = first.all("details", "sub")
    assert way.all("summary")[0].text == said
    (link,) = way.all("a")
    assert link.attributes["href"] == "/runs/fedcba98765432100123456789abcdef"
    assert not second.all("details", "sub")
    (note,) = [note.text for note in document.all("p", "note") if "never merged" in note.text]
    assert "set flowmark.workflow.name and flowmark.run.id alike" in note


def test_a_page_of_many_groups_speaks_of_itself_only() -> None:
    """A16: where groups are paged the sentence says so, and there is a way on and back."""
    many = [views.group((views.attempt(1, 0, 1),), "first_try", f"g{n}") for n in range(3)]
    document = _run(*many, following="next", asked=Asked(groups="this"))
    assert "Other groups on this page: 2 completed at first try." in document.text
    pager = document.all("nav", "pager")[0]
    assert [link.attributes["href"] for link in pager.all("a")] == [
        f"/runs/{views.KEY}",
        f"/runs/{views.KEY}?groups=next",
    ]


def test_ordinary_occurrences_stand_apart() -> None:
    """A4: several of one name stay separate and are no attempts."""
    ordinary = Page((views.occurrence(), views.occurrence(), views.occurrence("audit")), None)
    page = run_page(_FRAME, Answered(views.run(), Page((), None), ordinary))
    rows = parse(render(page)).all("table", "ord")[0].all("tbody")[0].all("tr")
    assert [row.all("th")[0].text for row in rows] == ["load-batch", "load-batch", "audit"]


def test_the_list_shows_strips_in_words_and_marks() -> None:
    """A9: a list draws each retried group in number order; the spoken label says the same."""
    quiet = views.group((views.attempt(1, 0, 1),), "first_try", "quiet")
    listed = [(views.run(), Page((views.every_mark(), quiet), None))]
    document = parse(render(runs_page(_FRAME, listed, following="c", asked={"q": "x"})))
    (strip,) = document.all("span", "strip")
    assert strip.marks() == ["superseded", "conflict", "none", "open", "completed", "failed"]
    assert strip.attributes["aria-label"] == (
        "1 failed, a later attempt is known, 2 conflict, 3–4 no evidence,"
        " 5 open: no end received, 6 completed, 7 failed, highest known"
    )
    assert "1 group completed at first try" in document.text
    older = document.all("nav", "pager")[0].all("a")[0]
    assert older.attributes["href"] == "/runs?q=x&cursor=c"


def test_events_show_both_decisions_and_raw_attributes() -> None:
    """A9, A23: stored and rejected evidence in order of arrival, attributes with their types."""
    rejected = views.event(state="rejected", code="conflict", message="has another end")
    page = events_page(_FRAME, views.run(), Page((views.event(), rejected), "n"), None)
    document = parse(render(page))
    first, second = document.all("section", "group")
    assert first.marks() == []
    assert second.marks() == ["conflict"]
    assert "has another end" in second.text
    cells = [
        [c.text for c in (*r.all("th"), *r.all("td"))] for r in first.all("tbody")[0].all("tr")
    ]
    assert cells == [
        [names.ATTEMPT_NUMBER, "int", "1"],
        [names.ERROR_RETRYABLE, "bool", "true"],
    ]


def test_no_page_says_running_and_none_has_script_or_style() -> None:
    """A11, D5: never "running"; nothing inline, so a strict policy holds."""
    groups = Page((views.every_mark(), views.flood(30)), "n")
    ordinary = Page((views.occurrence(status="open"),), None)
    pages: list[frame.Page] = [
        run_page(_FRAME, Answered(views.run("open"), groups, ordinary)),
        runs_page(_FRAME, [(views.run(), groups)], following=None, asked={}),
        events_page(_FRAME, views.run(), Page((views.event(),), None), None),
    ]
    for page in pages:
        html = render(page)
        assert not re.search(r"\brunning\b", html, re.IGNORECASE)
        assert not re.search(
            r"<script(?! src=\"/static/)|<style|\sstyle=|\son[a-z]+=|javascript:", html
        )
