"""The one table of deletions: path, parameter, answer; all of them take an admin key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flowmark_otel.backend.api.parameters import KEY, WORKFLOW, Parameter
from flowmark_otel.backend.deletion import SAYS, Deleted, Deleter
from flowmark_otel.backend.read import BadParameter
from flowmark_otel.model import Principal


@dataclass(frozen=True, slots=True)
class DeletionView:
    """What was deleted: ``audit`` is the number of its entry there, ``says`` what follows."""

    runs: int
    events: int
    audit: int
    says: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """One ``DELETE``; ``answer`` blocks until all of it is gone."""

    path: str
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    answer: Callable[[Deleter, Principal, Mapping[str, Any]], DeletionView]


def _run(deleter: Deleter, principal: Principal, given: Mapping[str, Any]) -> DeletionView:
    return _view(deleter.run(principal.project_id, given["key"], principal.key_id))


def _workflow(deleter: Deleter, principal: Principal, given: Mapping[str, Any]) -> DeletionView:
    if "workflow" not in given:
        msg = "workflow: is missing; name the workflow whose runs are to be deleted"
        raise BadParameter(msg)
    return _view(deleter.workflow(principal.project_id, given["workflow"], principal.key_id))


def _view(deleted: Deleted) -> DeletionView:
    return DeletionView(deleted.runs, deleted.events, deleted.audit, SAYS)


DELETIONS: Final = (
    Deletion(
        "/runs",
        "delete_runs",
        "Delete the runs that a workflow has, for good; needs an admin key and is audited.",
        (WORKFLOW,),
        _workflow,
    ),
    Deletion(
        "/runs/{key}",
        "delete_run",
        "Delete one run, for good; needs an admin key and is audited.",
        (KEY,),
        _run,
    ),
)
