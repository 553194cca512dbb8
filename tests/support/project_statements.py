"""What is known of single statements, each with the reason: exceptions of a test of isolation.

A statement is named by the module and the function that runs it, below ``backend``.
"""

from __future__ import annotations

from typing import Final

STORE_WIDE: Final = {
    "read/intake.py _attempts": "bytes per attempt are those of the whole store (contract, 5)",
    "read/intake.py _store_bytes": "the size of the store, likewise",
}
"""These read more than one project, so that other statements follow; answers do not show it."""

GROWING: Final = (
    "read/finding.py _rows",
    "read/refused.py items_of",
)
"""One statement each, to which filters are added: its condition is the same whatever they are."""

BUILT: Final = {
    "evidence.py conflicts": "run by _add_conflicts",
    "evidence.py conflicts_with": "run by _add_conflicts",
    "read/elsewhere.py _elsewhere": "run by _repeated",
    "read/events.py _stored": "run by _accepted",
    "read/events.py _rejected": "run by _refused",
    "read/events.py named_events": "run by its _accepted and _refused",
    "read/news.py _refused": "run by its _latest and _count",
    "read/filters.py conditions": "run by read/finding.py _rows",
    "read/filters.py named": "run by read/finding.py _named",
    "read/finding.py _by_arrival": "run by read/finding.py _walk",
    "read/finding.py _by_staleness": "run by read/finding.py _walk",
    "read/refused.py places": "run by read/problems.py _refused",
    "read/runs.py _rejected_groups": "run by read/runs.py _counts",
    "removal.py drop_rejections": "run by removal.py _remove",
    "retention.py _forgetting_names": "run by its job",
    "store/holdings.py load": "compares requests, no rows",
}
"""They say a project condition and leave it to another function to run it."""

BY_ID: Final = {
    "audit.py add": "an entry by the id that begin gave",
    "audit.py finish": "an entry by the id that begin gave",
    "keys.py job": "a key by its id",
    "read/news.py _count": "events of a run of the project",
    "read/news.py _latest": "events of a run of the project",
    "read/finding.py _rarest": "postings by terms of the project",
    "read/finding.py _walk": "runs that _rows then reads by project; postings by its terms",
    "read/operations.py groups_of": "occurrences of a run of the project",
    "read/operations.py _accepted_groups": "occurrences of a run of the project",
    "read/operations.py _rejected_groups": "occurrences of a run of the project",
    "read/operations.py occurrence_page": "occurrences of a run of the project",
    "read/refused.py _ids": "events that an occurrence of the project names",
    "read/refused.py _met": "occurrences of the run that a rejection of the project names",
    "read/unknown.py _rows": "occurrences of runs of the project",
    "removal.py _held": "of runs that bury read by project",
    "removal.py _remove": "of runs that were buried by project",
    "removal.py _remove_occurrences": "of runs that were buried by project",
    "removal.py bury": "of runs that it read by project",
    "removal.py clear": "what was buried, of whatever project",
    "store/rejections.py link": "whether there is any rejection at all",
    "store/senders.py _stored": "a sender by the id that was read by project",
    "store/sqlite/database.py _after": "the highest ids of the store",
    "store/transaction.py _load": "by keys of runs, which are made of the project",
    "store/transaction.py _load_operations": "occurrences of runs that were read by such keys",
    "summary/folding.py _problems": "by keys of runs, which are made of the project",
    "summary/live.py _affordable": "occurrences of runs of the project",
    "summary/ids.py remove_unused": "terms that no run has any more, of whatever project",
    "summary/rollups.py spread": "by series of the project",
    "summary/rollups.py sums_by_step": "by series of the project",
    "summary/stored.py kept": "by runs of the project",
    "summary/sums.py _remove_empty": "by series of the project",
    "summary/writing.py _affordable": "of stale runs, of whatever project",
    "summary/writing.py _fold": "by runs of the project",
    "summary/writing.py _mark_referrers": "by keys of runs, which are made of the project",
    "summary/writing.py _write": "by terms and runs of the project",
    "summary/writing.py fold_stale": "stale runs, of whatever project; folded project by project",
    "summary/writing.py forget": "of runs that bury read by project",
}
"""Statements without a project condition: what else keeps them to one project."""

OF_POSTGRESQL: Final = {
    "": "look-ups and changes by many keys, written for the driver",
    "summary/search.py _run": "the words of given runs",
}
"""Functions whose statements with a project condition are PostgreSQL's alone."""

OF_SQLITE: Final = {
    "": "the same look-ups and changes, as SQLite takes them",
}
"""And those that are SQLite's alone."""
