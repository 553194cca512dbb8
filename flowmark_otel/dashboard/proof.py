"""What the dashboard answers about one group, attempt or ordinary occurrence: page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flowmark_otel.backend import views
from flowmark_otel.backend.read import BadParameter, NotFound, Reader
from flowmark_otel.dashboard.guard import Guard, html, see_other
from flowmark_otel.dashboard.pages.attempt import (
    Evidence,
    Selected,
    attempt_page,
    compared_with,
    event_ids,
    occurrence_event_ids,
    occurrence_page,
    place_of,
)
from flowmark_otel.dashboard.pages.group import group_page
from flowmark_otel.dashboard.pages.links import query, run_path
from flowmark_otel.dashboard.pages.viewer import Viewer
from flowmark_otel.dashboard.places import Place
from flowmark_otel.model import MAX_NUMBER, Principal

_DIGITS: Final = 16


class Proof:
    """One method for each address; the JSON is the events, as the API gives them."""

    def __init__(self, reader: Reader, guard: Guard, viewer: Viewer) -> None:
        self._reader = reader
        self._guard = guard
        self._viewer = viewer

    def group(self, request: Request, principal: Principal) -> Response:
        """All attempts of a group, a part at a time."""
        key, asked = request.path_params["key"], request.query_params
        at = _whole(asked, "at", 0)
        group = self.group_of(request, principal)
        run = self._reader.run(principal.project_id, key)
        named = {"operation": group.operation, "group_id": group.group_id}
        here = query(f"{run_path(key)}/group.json", named)
        csv = query(f"{run_path(key)}/group.csv", named)
        frame = self._guard.frame(principal, group.group_id, json=here, csv=csv, current="true")
        return html(group_page(frame, run, group, at or 0))

    def group_json(self, request: Request, principal: Principal) -> Response:
        """A group, as the API gives it."""
        return JSONResponse(views.jsonable(views.Page((self.group_of(request, principal),), None)))

    def attempt(self, request: Request, principal: Principal) -> Response:
        """An attempt of a group: its events, what claims its place, and another beside it."""
        key = request.path_params["key"]
        if "of" in request.query_params:
            chosen = _chosen(key, request.query_params)
            return see_other(f"{self._guard.base(principal)}{chosen}")
        selected = _selected(request.query_params)
        run = self._reader.run(principal.project_id, key)
        group, place = self._place(principal, key, selected)
        other = compared_with(group, selected)
        if selected.other is not None and other is None:
            msg = f"with: this group implies no attempt {selected.other}"
            raise NotFound(msg)
        asked = dict(request.query_params)
        frame = self._guard.frame(
            principal,
            f"Attempt {place.label} of {group.group_id}",
            json=query(f"{run_path(key)}/attempt.json", asked),
            csv=query(f"{run_path(key)}/attempt.csv", asked),
            current="true",
        )
        return html(
            attempt_page(
                frame,
                run,
                group,
                selected,
                self._evidence(principal, key, place),
                None if other is None else self._evidence(principal, key, other),
                viewer=self._viewer,
            )
        )

    def attempt_json(self, request: Request, principal: Principal) -> Response:
        """The events behind an attempt, accepted and refused, in order of arrival."""
        return _json(self.events_of_attempt(request, principal))

    def events_of_attempt(
        self, request: Request, principal: Principal
    ) -> Sequence[views.EventView]:
        """The events behind the attempt that an address names."""
        key = request.path_params["key"]
        _, place = self._place(principal, key, _selected(request.query_params))
        return self._evidence(principal, key, place).events

    def occurrence(self, request: Request, principal: Principal) -> Response:
        """An ordinary occurrence and its events; an attempt is found by its group."""
        key = request.path_params["key"]
        of = self._occurrence(request, principal)
        run = self._reader.run(principal.project_id, key)
        named = {"operation_id": of.operation_id}
        frame = self._guard.frame(
            principal,
            f"Occurrence {of.operation_id}",
            json=query(f"{run_path(key)}/occurrence.json", named),
            csv=query(f"{run_path(key)}/occurrence.csv", named),
            current="true",
        )
        events = self._reader.events_named(principal.project_id, key, occurrence_event_ids(of))
        return html(occurrence_page(frame, run, of, events, self._viewer))

    def occurrence_json(self, request: Request, principal: Principal) -> Response:
        """The events behind an ordinary occurrence, in order of arrival."""
        return _json(self.events_of_occurrence(request, principal))

    def events_of_occurrence(
        self, request: Request, principal: Principal
    ) -> Sequence[views.EventView]:
        """The events behind the ordinary occurrence that an address names."""
        of, key = self._occurrence(request, principal), request.path_params["key"]
        return self._reader.events_named(principal.project_id, key, occurrence_event_ids(of))

    def group_of(self, request: Request, principal: Principal) -> views.GroupView:
        """The group that an address names. Raises BadParameter and NotFound, as the others do."""
        asked = request.query_params
        return self._reader.group(
            principal.project_id,
            request.path_params["key"],
            _text(asked, "operation"),
            _text(asked, "group_id"),
        )

    def _place(
        self, principal: Principal, key: str, selected: Selected
    ) -> tuple[views.GroupView, Place]:
        group = self._reader.group(principal.project_id, key, selected.operation, selected.group_id)
        place = place_of(group, selected.number)
        if place is None:
            msg = f"this group implies no attempt {selected.number}"
            raise NotFound(msg)
        return group, place

    def _evidence(self, principal: Principal, key: str, place: Place) -> Evidence:
        found = self._reader.events_named(principal.project_id, key, event_ids(place))
        return Evidence(place, found)

    def _occurrence(self, request: Request, principal: Principal) -> views.OccurrenceView:
        operation_id = _text(request.query_params, "operation_id")
        key = request.path_params["key"]
        return self._reader.occurrence(principal.project_id, key, operation_id)


def _chosen(key: str, asked: QueryParams) -> str:
    """The address that the form of an attempt's page means."""
    of = dict(parse_qsl(asked["of"]))
    kept = {name: of.get(name) for name in ("operation", "group_id", "number")}
    return query(f"{run_path(key)}/attempt", {**kept, "with": asked.get("with", "").strip()})


def _selected(asked: QueryParams) -> Selected:
    number = _whole(asked, "number")
    if number is None:
        msg = "number: is missing; set the number of an attempt, from 1"
        raise BadParameter(msg)
    return Selected(
        _text(asked, "operation"), _text(asked, "group_id"), number, _whole(asked, "with")
    )


def _text(asked: QueryParams, name: str) -> str:
    text = asked.get(name, "")
    if not text:
        msg = f"{name}: is missing; take the address from the page of the run"
        raise BadParameter(msg)
    return text


def _whole(asked: QueryParams, name: str, least: int = 1) -> int | None:
    text = asked.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) >= least):
        msg = f"{name}: found {text!r}; set a whole number from {least}"
        raise BadParameter(msg)
    return min(int(text), MAX_NUMBER)


def _json(events: Sequence[views.EventView]) -> Response:
    return JSONResponse(views.jsonable(views.Page(tuple(events), None)))
