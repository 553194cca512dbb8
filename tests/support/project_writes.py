"""Every way to change one project, as a table: what a test of isolation goes through.

Names are said by whoever sends, so both projects use all of them; what each function is given
includes the ids of the other project, which no caller would give it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from flowmark_otel import names
from flowmark_otel.backend import removal, retention
from flowmark_otel.backend.deletion import Deleter
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import quotas
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.model import Span
from tests.support.history import attempt, operation_of, run_of, span
from tests.support.project_reads import Scene, Way, key_of, on, run_ids
from tests.support.two_projects import (
    DAY,
    END,
    LATE,
    NOW,
    OURS,
    THEIR_WORKFLOW,
    THEIRS,
    folds,
    say,
    spans_of,
    started,
)


def _job(job: Callable[[Connection], object]) -> Way:
    return lambda scene: scene.store.write(job).result(30)


def _sending(*spans: Span) -> Way:
    return lambda scene: say(scene.store, OURS, folds(spans))


def _retention(scene: Scene) -> retention.Retention:
    return retention.Retention(scene.store, 1)


def _over_quota(scene: Scene) -> object:
    """Each quota in turn at its limit, with what the other project holds far beyond it."""
    found = []
    for quota, held in (("events", 0), ("groups", 0), ("workflows", 1), ("operations", 1)):
        given = dict.fromkeys(("events", "groups", "workflows", "operations"), quotas.UNLIMITED)
        given[quota] = held

        def change(connection: Connection, given: dict[str, int] = given) -> None:
            quotas.change(connection, OURS, given)

        scene.store.write(change).result(30)
        for number in (50, 51):
            said = attempt(f"new-{quota}", number, workflow=f"w-{quota}", operation=f"o-{quota}")
            found.append(say(scene.store, OURS, folds([span(number, said)])))
    return found


def _seen_again(scene: Scene) -> object:
    scene.clock.now = NOW + 3 * DAY
    return say(scene.store, OURS, folds([span(60, attempt("batch-50", 1))]))


def _late(scene: Scene) -> object:
    """A run comes that one of theirs seems to wait for; read before it is summarised."""
    say(scene.store, OURS, folds([span(61, run_of(LATE))]))
    return scene.reader.overview(OURS, 0, END), scene.reader.run(OURS, key_of(OURS, LATE))


def _folding(scene: Scene) -> object:
    fold_all(scene.store)
    return None


def _round(scene: Scene) -> object:
    scene.clock.now = END
    return _retention(scene).round()


def _burying(before: int | None) -> Way:
    burial = removal.Burial(removal.EXPIRED, END, None)
    return _job(lambda c: removal.bury(c, OURS, run_ids(c), burial, before=before))


_HALF: Final = {**operation_of(), names.ATTEMPT_GROUP_ID: "half"}
_NOWHERE: Final = Span(bytes(16), bytes(8), "x", 1, 2, failed=False, attributes=_HALF)

WRITES: Final[dict[str, Way]] = {
    "send again": _sending(*spans_of("ours")),
    "send otherwise": _sending(*spans_of("otherwise")),
    "claim a place": _sending(span(70, attempt("batch-42", 1)), span(5, attempt("batch-42", 8))),
    "take what was refused": lambda scene: say(scene.store, OURS, [started(11, "batch-60")]),
    "be refused": _sending(span(71, _HALF), span(11, _HALF)),
    "be refused without an id": _sending(_NOWHERE),
    "be over a quota": _over_quota,
    "use names again": _seen_again,
    "send late": _late,
    "delete a run": lambda scene: Deleter(scene.store).run(OURS, key_of(OURS, "r1"), "tests")[:2],
    "delete theirs": lambda scene: Deleter(scene.store).run(OURS, key_of(THEIRS, "r1"), "tests"),
    "delete a workflow": lambda scene: Deleter(scene.store).workflow(OURS, "crm.sync", "t")[:2],
    "delete their workflow": lambda scene: Deleter(scene.store).workflow(OURS, THEIR_WORKFLOW, "t"),
    "bury": _burying(None),
    "bury what is old": _burying(END),
    "drop rejections": _job(lambda c: removal.drop_rejections(c, OURS, END)),
    "forget names": _job(retention._forgetting_names(OURS, END)),
    "forget senders": lambda scene: scene.store.write(
        _retention(scene)._forgetting_senders(OURS, END)
    ).result(30),
    "old runs": lambda scene: _retention(scene)._old_runs(OURS, END, (-1, -1)),
    "referred": on(lambda c: retention._referred(c, OURS, END)),
    "change quotas": _job(lambda c: quotas.change(c, OURS, {"groups": 7})),
    "revoke a key": lambda scene: Keys(scene.store).revoke("none of ours"),
}

OF_BOTH: Final[dict[str, Way]] = {"fold": _folding, "a round of retention": _round}
"""Ways that change every project by themselves."""
