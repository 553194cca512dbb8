"""Runs, attempts and occurrences as terminal tables, made from the JSON of the API (A9, A16)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from rich.table import Table
from rich.text import Text

from flowmark_otel import names
from flowmark_otel.commands.console import cell, printable
from flowmark_otel.dashboard.words import NOTHING, RUN_STATUSES, VERDICTS, other_runs, took

Json: TypeAlias = Mapping[str, Any]

_NEVER_MERGED: Final = (
    "Runs are never merged: if this is one piece of work, set"
    f" {names.WORKFLOW_NAME} and {names.RUN_ID} alike on all its spans."
)
_STYLES = {
    names.STATUS_COMPLETED: "green",
    names.STATUS_FAILED: "red",
    names.STATUS_OPEN: "yellow",
    names.STATUS_UNKNOWN: "dim",
    names.VERDICT_FIRST_TRY: "green",
    names.VERDICT_AFTER_RETRY: "green",
    names.VERDICT_UNDETERMINED: "magenta",
}


def runs_table(runs: Iterable[Json]) -> Table:
    """One row a run; counts of different things in columns of their own."""
    table = _table("Runs", "workflow", "run", "status", "outcome", "result", "retry of")
    for column in ("operations", "attempts", "failed attempts"):
        table.add_column(column, justify="right")
    for run in runs:
        counts = run["counts"]
        table.add_row(
            cell(run["workflow"]),
            cell(run["run_id"]),
            _status(run["status"], RUN_STATUSES),
            cell(run["outcome"]),
            _result(run["result"]),
            _retry_of(run["retry_of"]),
            str(counts["operations"]),
            str(counts["attempts"]),
            str(counts["failed_attempts"]),
        )
    return table


def attempts_table(groups: Iterable[Json], *, evidence: bool) -> Table:
    """One row an attempt by number; places without evidence are rows too.

    With ``evidence`` the trace and span behind each.
    """
    table = _table("Attempts", "operation", "group", "attempt", "status", "error")
    table.add_column("took", justify="right")
    table.add_column("verdict of the group")
    if evidence:
        table.add_column("trace and span", overflow="fold")
    for group in groups:
        table.add_section()
        heads = [cell(group["operation"]), cell(group["group_id"])]
        verdict = _status(group["verdict"], VERDICTS)
        for number, cells in _places(group):
            refs = cells[3:] if evidence else ()
            table.add_row(*heads, number, *cells[:3], verdict, *refs)
            heads, verdict = [Text(), Text()], Text()
    return table


def elsewhere_lines(groups: Iterable[Json]) -> list[str]:
    """What stands below the attempts: which groups occur in other runs too, and the mend (A3)."""
    lines = [_elsewhere(group) for group in groups if group["elsewhere"]]
    return [*lines, _NEVER_MERGED] if lines else []


def _elsewhere(group: Json) -> str:
    keys = group["elsewhere"]
    runs = other_runs(group["elsewhere_count"], len(keys), at_least=group["elsewhere_at_least"])
    said = f"group {group['group_id']!r} of operation {group['operation']!r} also occurs in {runs}"
    return printable(f"{said}: {', '.join(keys)}")


def occurrences_table(occurrences: Iterable[Json]) -> Table:
    """One row an occurrence without an attempt (A4)."""
    table = _table("Occurrences without attempt", "operation", "operation id", "status", "error")
    table.add_column("took", justify="right")
    for found in occurrences:
        table.add_row(
            cell(found["operation"]),
            cell(found["operation_id"]),
            _status(found["status"], {}),
            _error(found["error"]),
            _duration(found["duration_ns"]),
        )
    return table


def run_lines(run: Json) -> list[str]:
    """What stands above the tables of one run: its links and its ends."""
    lines = [f"key {run['key']}, first received {run['first_received_at']}"]
    lines.append(f"started {run['started_at'] or 'unknown'}, ended {run['ended_at'] or 'unknown'}")
    target = run["retry_of"]
    if target:
        found = f"key {target['key']}" if target["resolved"] else "unresolved"
        lines.append(
            f"says it retries run {target['run_id']!r} of workflow {target['workflow']!r} ({found})"
        )
    lines += [
        f"retried by run {other['run_id']!r} of workflow {other['workflow']!r} (key {other['key']})"
        for other in run["retried_by"]
    ]
    lines += [
        f"parent may be run {other['run_id']!r} of workflow {other['workflow']!r}"
        for other in run["parents"]
    ]
    if len(run["ends"]) > 1:
        lines.append(f"has {len(run['ends'])} ends; the latest by sent time is shown")
    if run["flags"]:
        lines.append("flags: " + ", ".join(run["flags"]))
    if run["defaulted"]:
        lines.append("from defaults: " + ", ".join(run["defaulted"]))
    return [printable(line) for line in lines]


def _places(group: Json) -> list[tuple[str, tuple[Text, Text, Text, Text]]]:
    """Attempts, gaps and places known from refused evidence alone, in order of number."""
    rows: list[tuple[int, str, tuple[Text, Text, Text, Text]]] = []
    known = set()
    for attempt in group["attempts"]:
        number = attempt["number"]
        known.add(number)
        limit = f" of {attempt['limit']}" if attempt["limit"] else ""
        status = _status(attempt["status"], {})
        if attempt["conflict"]:
            status.append(", in conflict", style="magenta")
        refs = attempt["evidence"]
        cells = (
            status,
            _error(attempt["error"]),
            _duration(attempt["duration_ns"]),
            cell(f"{refs['trace_id']} {refs['span_id']}"),
        )
        rows.append((number, f"{number}{limit}", cells))
    for first, last in group["gaps"]:
        label = str(first) if first == last else f"{first}-{last}"
        nothing = Text("no evidence", style="dim")
        rows.append((first, label, (nothing, Text(), Text(), Text())))
    for number in group["conflicts"]:
        if number not in known:
            refused = Text("in conflict, refused evidence only", style="magenta")
            rows.append((number, str(number), (refused, Text(), Text(), Text())))
    return [(label, cells) for _, label, cells in sorted(rows, key=lambda row: row[0])]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _status(status: str, words: Mapping[str, str]) -> Text:
    return Text(words.get(status, status), style=_STYLES.get(status, ""))


def _error(error: Json | None) -> Text:
    return cell((error["code"] or error["type"]) if error else None)


def _duration(duration_ns: int | None) -> Text:
    return Text(NOTHING if duration_ns is None else took(duration_ns))


def _result(result: Json) -> Text:
    return cell(", ".join(f"{key}={value}" for key, value in result.items()) or None)


def _retry_of(target: Json | None) -> Text:
    if not target:
        return cell(None)
    return cell(target["run_id"] if target["resolved"] else f"{target['run_id']} (unresolved)")
