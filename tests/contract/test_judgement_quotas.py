"""The rows of the judgement table on tombstones and quotas (contract, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flowmark_otel import names
from flowmark_otel.backend.holding import Limits
from flowmark_otel.backend.store import Store, Verdict, open_store, schema
from flowmark_otel.backend.store.rejections import MAX_OVER_QUOTA
from flowmark_otel.model import Refused
from tests.support.envelopes import completed, failed, observed, put, rows, run_event, started


@contextmanager
def limited(url: str, **limits: int) -> Iterator[Store]:
    """A store whose projects have quotas."""
    opened = open_store(url, limits=Limits(**limits))
    yield opened
    opened.close()


def codes(verdict: Verdict) -> list[str]:
    """The codes of what was rejected."""
    return [each.code for each in verdict.rejections]


def test_an_event_over_the_quota_of_events_is_refused(store_url: str) -> None:
    """Issue 4, quotas: what is over is rejected as `limit`, and says which quota and the mend."""
    with limited(store_url, events=2) as store:
        verdict = put(store, started(1), started(2), started(3))
        assert (verdict.stored, codes(verdict)) == (2, [names.LIMIT])
        assert verdict.rejections[0].message == (
            "the project's quota of 2 events is used up; raise it with flowmark-otel quotas set,"
            " let runs expire or delete some"
        )
        [kept] = rows(store, schema.rejections)
        assert (kept["code"], kept["operation"]) == (names.LIMIT, "push-to-crm")
        assert kept["run"] == rows(store, schema.runs)[0]["id"]
        assert len(rows(store, schema.events)) == 2


def test_what_is_known_or_contradicts_is_told_so_at_the_quota(store_url: str) -> None:
    """Contract, section 4: invalid, duplicate and conflict come before the quota in the table."""
    with limited(store_url, events=1) as store:
        put(store, started(1, ("g", 1)))
        verdict = put(
            store,
            started(1, ("g", 1)),
            started(1, ("g", 2)),
            started(2, ("g", 1)),
            Refused(names.INVALID, "bad", "op-x-start"),
            started(3, ("g", 3)),
        )
        assert verdict.duplicate == 1
        assert codes(verdict) == [names.CONFLICT, names.CONFLICT, names.INVALID, names.LIMIT]


def test_a_quota_of_events_counts_ends_as_well(store_url: str) -> None:
    """Issue 4, quotas: an event quota counts events; the end of a known operation is one."""
    with limited(store_url, events=1) as store:
        put(store, started(1, ("g", 1)))
        assert codes(put(store, completed(1, ("g", 1)))) == [names.LIMIT]


def test_what_is_over_a_quota_makes_no_run(store_url: str) -> None:
    """Fault row 17: a refused event of a run that is not known leaves no run behind it."""
    with limited(store_url, workflows=1) as store:
        verdict = put(store, started(1), started(2, workflow="other", run="r2"))
        assert (verdict.stored, codes(verdict)) == (1, [names.LIMIT])
        assert "quota of 1 workflow names" in verdict.rejections[0].message
        assert [run["workflow"] for run in rows(store, schema.runs)] == ["crm.sync"]
        assert {row["workflow"] for row in rows(store, schema.known_names)} == {"crm.sync"}


def test_a_known_workflow_goes_on_beside_a_full_quota(store_url: str) -> None:
    """Issue 4, quotas: a quota of names refuses new names alone."""
    with limited(store_url, workflows=1, operations=1) as store:
        assert put(store, started(1)).stored == 1
        assert put(store, started(2, run="r2"), run_event(names.RUN_STARTED, 3)).stored == 2
        assert codes(put(store, started(4, operation="load"))) == [names.LIMIT]


def test_the_end_of_a_known_operation_is_never_refused_for_its_name(store_url: str) -> None:
    """Issue 4, quotas: names were counted with the start; the end and tries inside it are stored.

    So it is after the names were forgotten by retention or by another process.
    """
    with limited(store_url, workflows=1, operations=1, groups=1) as store:
        put(store, started(1, ("g", 1)))
        store.write(lambda connection: connection.execute(schema.known_names.delete())).result(30)
        put(store, started(2, workflow="other", run="r2", operation="other"))
        verdict = put(store, failed(1, ("g", 1)), observed(1, 1))
        assert (verdict.stored, codes(verdict)) == (2, [])


@pytest.mark.parametrize("together", [True, False])
def test_a_quota_of_groups_counts_groups(store_url: str, *, together: bool) -> None:
    """A3: a group is one of a run and operation name; more attempts of a known one have room."""
    with limited(store_url, groups=2) as store:
        events = [
            started(1, ("g", 1)),
            started(2, ("g", 2)),
            started(3, ("g", 1), run="r2"),
            started(4, ("g", 3), run="r2"),
            started(5, ("h", 1)),
            started(6),
        ]
        verdicts = [put(store, *events)] if together else [put(store, each) for each in events]
        assert sum(each.stored for each in verdicts) == 5
        [refused] = [each for verdict in verdicts for each in verdict.rejections]
        assert refused.event_id == events[4].event_id
        assert "quota of 2 attempt groups" in refused.message


def test_projects_have_quotas_of_their_own(store_url: str) -> None:
    """I5: what one project holds takes no room from another."""
    with limited(store_url, events=1) as store:
        assert put(store, started(1), project_id=1).stored == 1
        assert put(store, started(1), project_id=2).stored == 1
        assert codes(put(store, started(2), project_id=2)) == [names.LIMIT]


def test_counts_survive_a_restart(store_url: str) -> None:
    """Issue 4, quotas: counts live in the store; one process counts exactly, also after another."""
    with limited(store_url, events=3, groups=2) as store:
        put(store, started(1, ("g", 1)), started(2, ("h", 1)))
    with limited(store_url, events=3, groups=2) as store:
        assert codes(put(store, started(3, ("i", 1)))) == [names.LIMIT]
        assert put(store, completed(1, ("g", 1))).stored == 1
        assert codes(put(store, completed(2, ("h", 1)))) == [names.LIMIT]


def test_evidence_over_a_quota_does_not_fill_the_disk(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 17: of events over a quota only so many are kept; all are answered alike."""
    assert MAX_OVER_QUOTA == 10_000
    monkeypatch.setattr("flowmark_otel.backend.store.rejections.MAX_OVER_QUOTA", 3)
    with limited(store_url, events=0) as store:
        for first in (1, 3, 5):
            assert len(codes(put(store, started(first), started(first + 1)))) == 2
        assert len(rows(store, schema.rejections)) == 3
