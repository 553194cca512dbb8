"""Hostile telemetry in every field of every view: shown as text, and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest

from flowmark_otel import names
from flowmark_otel.backend.api.parameters import RUN_FILTERS
from flowmark_otel.backend.views import (
    GroupView,
    OccurrenceView,
    Page as Listed,
    RetryOf,
    RunLink,
    RunView,
)
from flowmark_otel.dashboard.pages import evidence
from flowmark_otel.dashboard.pages.attempt import (
    AttemptPage,
    Evidence,
    Selected,
    attempt_page,
    occurrence_page,
)
from flowmark_otel.dashboard.pages.events import events_page
from flowmark_otel.dashboard.pages.frame import Choice, Frame, Page
from flowmark_otel.dashboard.pages.ingest import ingest_page
from flowmark_otel.dashboard.pages.links import EVIDENCE, query
from flowmark_otel.dashboard.pages.overview import overview_page
from flowmark_otel.dashboard.pages.run import Answered, run_page
from flowmark_otel.dashboard.pages.runs import runs_page, trace_page
from flowmark_otel.dashboard.places import places
from flowmark_otel.dashboard.ranges import Range
from flowmark_otel.dashboard.render import render
from flowmark_otel.dashboard.text import LONGEST, visible
from tests.support import project_views, run_views as views
from tests.support.html_page import Element, parse

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</code></td></table><h1>gone",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt; &amp; &#x27;",
    "]]><!-- --><svg/onload=alert(1)>",
)
_CLOSED = {"status", "verdict", "kind", "origin", "state", "outcome_of_try", "reason"}


def _poisoned(value: Any, poison: str, name: str = "") -> Any:
    """A view with a text in every free field, keys of mappings included."""
    if name in _CLOSED:
        return value
    if isinstance(value, str):
        return poison
    if isinstance(value, tuple):
        return tuple(_poisoned(item, poison) for item in value)
    if isinstance(value, Mapping):
        return {f"{poison}{key}": _poisoned(item, poison) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        keep = {"outcome", "event", "flags"} if type(value).__name__ != "RunView" else {"flags"}
        return dataclasses.replace(
            value,
            **{
                field.name: _poisoned(getattr(value, field.name), poison, field.name)
                for field in dataclasses.fields(value)
                if field.init and field.name not in keep
            },
        )
    return value


def _pages(poison: str) -> list[str]:
    shown = views.run(
        retried_by=(RunLink("w", "r", "k"),),
        retry_of=RetryOf("w", "r", resolved=True, key="k"),
        parents=(RunLink("w", "r", "k"),),
        parent_run_id="p",
        defaulted=("flowmark.run.id",),
        ends=views.run().ends * 2,
    )
    run = _poisoned(shown, poison)
    observed = dataclasses.replace(views.every_mark().attempts[0], observed=(views.tried(),))
    every = views.every_mark()
    every = dataclasses.replace(every, attempts=(observed, *every.attempts[1:]))
    groups = _poisoned(Listed((every, views.flood(30)), None), poison)
    occurrence = views.occurrence(conflict=True, rejected=views.every_mark().rejected)
    ordinary = _poisoned(Listed((occurrence,), None), poison)
    event = views.event(state="rejected", code="conflict", message="m")
    events = _poisoned(Listed((event,), None), poison)
    figures = (_poisoned(views.statistics(), poison),)
    frame = Frame(poison, project=poison, session=True, json="/runs.json")
    asked = dict.fromkeys([one.name for one in RUN_FILTERS], poison)
    answered = Answered(run, groups, ordinary, figures)
    pages: list[Page] = [
        run_page(frame, answered),
        *_attempts(frame, run, groups.items[0], ordinary.items[0], poison),
        runs_page(frame, [(run, groups)], following=poison, asked=asked),
        trace_page(frame, [(run, groups)], poison),
        events_page(frame, run, events, poison),
        *_project_pages(frame, poison),
    ]
    return [render(page) for page in pages]


def _project_pages(frame: Frame, poison: str) -> list[Page]:
    """The pages of a whole project, with a text in every free field of theirs, too."""
    asked = Range(1, 2, None, {"since": poison})
    overview = _poisoned(project_views.overview(rows=2, gaps=1), poison)
    told = evidence.Told(project_views.NOW, 900, {"workflow": poison, "service": poison})
    looked = [
        evidence.Looked(kind, Listed((_poisoned(project_views.item(kind), poison),), poison))
        for kind in evidence.KINDS
    ]
    filters = evidence.Filters((), poison, poison, (), poison, poison)
    return [
        overview_page(frame, overview, None, asked),
        evidence.EvidencePage(
            frame,
            (),
            filters._replace(kind=_CHOICES, last=_CHOICES),
            filtered=True,
            matrix=evidence.matrix(looked, told),
            sections=tuple(evidence.section(each, told, shown=1, whole=False) for each in looked),
            csv=query(EVIDENCE, told.asked),
            newest=None,
            older=None,
        ),
        ingest_page(frame, _poisoned(project_views.ingest(), poison), None),
    ]


_CHOICES = (Choice("", "any", chosen=True),)


def _attempts(
    frame: Frame, run: RunView, group: GroupView, ordinary: OccurrenceView, poison: str
) -> list[AttemptPage]:
    """A conflict, two attempts compared, and an ordinary occurrence."""
    observed = dataclasses.replace(views.every_mark().attempts[0], observed=(views.tried(),))
    claimed = {
        **_poisoned(views.event(), poison).attributes,
        names.OPERATION_ID: poison,
        names.ERROR_CODE: poison,
    }
    stored = dataclasses.replace(_poisoned(views.event(), poison), attributes=claimed)
    refused = dataclasses.replace(
        stored, state="rejected", code=poison, message=poison, span_id=f"{poison} 2"
    )
    first, second = (
        place._replace(attempt=_poisoned(observed, poison)) for place in places(group)[:2]
    )
    events = (stored, refused)
    selected = Selected(group.operation, group.group_id, 2)
    found, other = Evidence(second, events), Evidence(first, events)

    def viewer(trace: str, span: str) -> str:
        return f"https://viewer/{_hex(trace)}/{_hex(span)}"

    return [
        attempt_page(frame, run, group, selected, found, other, viewer=viewer),
        occurrence_page(frame, run, ordinary, events, viewer),
    ]


def _hex(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _skeleton(element: Element) -> list[object]:
    """The tree without its data: tags and the names of attributes."""
    return [
        (child.tag, sorted(child.attributes), _skeleton(child))
        for child in element.children
        if isinstance(child, Element)
    ]


@pytest.mark.parametrize("poison", HOSTILE)
def test_hostile_text_changes_no_element_of_any_page(poison: str) -> None:
    """D5: whatever a field holds, the page has the elements and attributes it has without it."""
    for harmless, hostile in zip(_pages("plain"), _pages(poison), strict=True):
        document = parse(hostile)
        assert _skeleton(document) == _skeleton(parse(harmless))
        assert poison in document.text or " ".join(poison.split()) in document.text
        for element in document.all():
            for name in ("href", "action"):
                target = element.attributes.get(name, "/")
                assert target.startswith(("/", "#", "https://viewer/")), target


@pytest.mark.parametrize(
    "character",
    ["\u202e", "\u2066", "\u200b", "\ufeff", "\x00", "\x1b", "\n", "\x85", "\u2028", "\ud800"],
)
def test_characters_that_cannot_be_seen_are_written_out(character: str) -> None:
    """D5: controls, bidirectional and invisible characters are shown as their code points."""
    assert visible(f"a{character}b") == f"a⟨U+{ord(character):04X}⟩b"
    for page in _pages(f"a{character}b"):
        assert f"a⟨U+{ord(character):04X}⟩b" in page
        if character != "\n":
            assert character not in page


def test_a_very_long_value_is_cut_and_says_so() -> None:
    """D5: a page stays readable; the JSON has the whole value."""
    assert visible("x" * (LONGEST + 5)).endswith("xx… (5 more characters)")
    assert visible("ordinary – text é 漢字") == "ordinary – text é 漢字"
