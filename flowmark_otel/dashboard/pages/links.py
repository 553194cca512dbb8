"""The addresses of the dashboard's own pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

HOME = "/"
RUNS = "/runs"
EVIDENCE = "/evidence"
INGEST = "/ingest"
OVERVIEW = "/overview"
"""Where the overview's JSON and CSV are; the page itself is at ``HOME``."""
LOGIN = "/login"
LOGOUT = "/logout"
PROJECTS = "/projects"

TABS: Final = (
    ("overview", HOME, "Overview"),
    ("runs", RUNS, "Runs"),
    ("evidence", EVIDENCE, "Evidence"),
    ("ingest", INGEST, "Ingest"),
)
"""The views of the navigation: name, address, word."""


def run_path(key: str) -> str:
    """The page of a run."""
    return f"{RUNS}/{_segment(key)}"


def attempt_path(key: str, operation: str, group_id: str, number: int | None = None) -> str:
    """The page of an attempt; without ``number`` what all those of its group begin with."""
    asked = {"operation": operation, "group_id": group_id}
    numbered = asked if number is None else {**asked, "number": str(number)}
    return query(f"{run_path(key)}/attempt", numbered)


def group_path(key: str, operation: str, group_id: str) -> str:
    """The page of all attempts of a group."""
    return query(f"{run_path(key)}/group", {"operation": operation, "group_id": group_id})


def occurrence_path(key: str, operation_id: str) -> str:
    """The page of an ordinary occurrence."""
    return query(f"{run_path(key)}/occurrence", {"operation_id": operation_id})


def trace_path(trace_id: str) -> str:
    """The door for whoever has a trace id."""
    return f"/trace/{_segment(trace_id)}"


def workflow_path(workflow: str) -> str:
    """The runs of one workflow."""
    return query(RUNS, {"workflow": workflow})


def query(path: str, parameters: Mapping[str, str | None]) -> str:
    """A path with the parameters that are set."""
    given = {name: value for name, value in parameters.items() if value}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def _segment(text: str) -> str:
    return quote(text, safe="", errors="replace")


def own_path(target: str | None) -> str:
    """A path of this server to go on to; anything else leads home (no open redirect)."""
    if not target or not target.startswith("/") or target.startswith(("//", "/\\")):
        return HOME
    return target if target.isprintable() and "\\" not in target else HOME
