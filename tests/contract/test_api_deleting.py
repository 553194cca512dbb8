"""Deleting through the API: who may, what is answered, and what is left (contract, section 5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from flowmark_otel.backend import audit
from flowmark_otel.backend.api.deletions import DELETIONS
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import open_store
from flowmark_otel.backend.store.reading import snapshot
from tests.support.api import Api, story, told
from tests.support.json_schema import faults

SAYS = "Evidence that still arrives for what was deleted is acknowledged and not kept."


KEYS = 4
"""Keys that were made before, each an entry of the audit."""


class Told(NamedTuple):
    """A backend with the story in it, an admin key of its project, and one of another."""

    api: Api
    path: Path
    admin: str
    stranger: str

    def delete(self, path: str, key: str | None = None, **query: object) -> tuple[int, object]:
        """Status and JSON of a DELETE, with the admin key unless another is given."""
        answer = self.api.answer(path, f"Bearer {key or self.admin}", method="DELETE", query=query)
        return answer.status_code, answer.json()


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Told]:
    """The story on a new store."""
    path = tmp_path / "store.db"
    with told(path) as api:
        store = open_store(f"sqlite:///{path}")
        try:
            keys = Keys(store)
            admin = keys.create("default", "admin")[1]
            stranger = keys.create("other", "admin")[1]
        finally:
            store.close()
        yield Told(api, path, admin, stranger)


def test_a_run_is_deleted_by_its_key(backend: Told) -> None:
    """A8, A17: the run is gone, its retry reads unresolved, and what is sent again is not kept."""
    [first] = backend.api.get("/runs", run_id="r0")["items"]
    status, answer = backend.delete(f"/runs/{first['key']}")
    assert (status, answer) == (200, {"runs": 1, "events": 2, "audit": 1 + KEYS, "says": SAYS})
    assert backend.api.get("/runs", run_id="r0")["items"] == []
    [second] = backend.api.get("/runs", run_id="r1")["items"]
    assert second["retry_of"] == {
        "workflow": "crm.sync",
        "run_id": "r0",
        "resolved": False,
        "key": None,
    }
    answer = backend.api.send(*story())
    assert answer.status_code == 200
    assert backend.api.get("/runs", run_id="r0")["items"] == []
    assert backend.delete(f"/runs/{first['key']}")[0] == 404


def test_a_workflow_is_deleted_by_its_name(backend: Told) -> None:
    """Contract, section 5: `DELETE /runs?workflow=` takes all runs that the workflow has."""
    assert len(backend.api.get("/runs")["items"]) == 3
    status, answer = backend.delete("/runs", workflow="crm.sync")
    assert status == 200
    assert isinstance(answer, dict)
    assert answer["runs"] == 3
    assert backend.api.get("/runs")["items"] == []
    assert backend.api.get("/operations")["items"] == []
    assert backend.delete("/runs", workflow="crm.sync") == (
        404,
        {"error": {"code": "not_found", "message": "no run of this workflow"}},
    )


def test_only_an_admin_key_deletes(backend: Told) -> None:
    """Fault row 22: read and ingest keys are refused, and a foreign one sees what nobody has."""
    key = backend.api.get("/runs")["items"][0]["key"]
    for path, query in ((f"/runs/{key}", {}), ("/runs", {"workflow": "crm.sync"})):
        assert backend.delete(path, backend.api.running.read_key, **query) == (
            403,
            {
                "error": {
                    "code": "forbidden",
                    "message": "a key of kind read may not delete; use one of kind admin",
                }
            },
        )
        assert backend.delete(path, backend.api.running.ingest_key, **query)[0] == 403
        assert backend.delete(path, "fmk_abc_def", **query)[0] == 401
        assert backend.delete(path, backend.stranger, **query)[0] == 404
    foreign = backend.delete(f"/runs/{key}", backend.stranger)
    assert foreign == backend.delete(f"/runs/{'0' * 32}", backend.stranger)
    assert len(backend.api.get("/runs")["items"]) == 3


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({}, "workflow: is missing; name the workflow whose runs are to be deleted"),
        ({"workflow": ""}, "workflow: found ''; set a text, or leave the parameter out"),
        ({"workflow": "crm.sync", "status": "open"}, "'status': is no parameter here"),
    ],
)
def test_a_deletion_that_says_too_little_or_too_much_deletes_nothing(
    backend: Told, query: dict[str, str], says: str
) -> None:
    """Contract, section 5: no filter is silently ignored; a bare DELETE is no way to lose all."""
    status, answer = backend.delete("/runs", **query)
    assert status == 400
    assert says in str(answer)
    assert len(backend.api.get("/runs")["items"]) == 3


def test_other_paths_cannot_be_deleted(backend: Told) -> None:
    """Fault row 19: a method that a path does not take is answered 405, with those it does."""
    key = backend.api.get("/runs")["items"][0]["key"]
    admin = f"Bearer {backend.admin}"
    for path in ("/operations", f"/runs/{key}/events", "/openapi.json"):
        answer = backend.api.answer(path, admin, method="DELETE")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    answer = backend.api.answer("/runs", admin, method="POST")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, DELETE")
    assert backend.api.answer("/none", admin, method="DELETE").status_code == 404


def test_the_audit_names_the_key(backend: Told) -> None:
    """Issue 4, deletion: who deleted what is in the store, by the id of the key."""
    key = backend.api.get("/runs")["items"][0]["key"]
    backend.delete(f"/runs/{key}")
    store = open_store(f"sqlite:///{backend.path}")
    with snapshot(store.engine) as connection:
        entry, *made = audit.entries(connection)
    store.close()
    assert entry.actor == backend.admin.split("_")[1]
    assert (entry.action, entry.subject) == ("delete_run", key)
    assert [one.action for one in made] == ["create_key"] * KEYS


def test_the_document_has_the_deletions(backend: Told) -> None:
    """D5: the OpenAPI document says what a DELETE takes and answers, and it is answered so."""
    document = backend.api.get("/openapi.json")
    key = backend.api.get("/runs")["items"][0]["key"]
    for one in DELETIONS:
        said = document["paths"][f"/api/v1{one.path}"]["delete"]
        assert [each["required"] for each in said["parameters"]] == [True]
        status, answer = backend.delete(
            one.path.replace("{key}", key), **({} if "{key}" in one.path else {"workflow": "x"})
        )
        schema = said["responses"][str(status)]["content"]["application/json"]["schema"]
        assert faults(answer, schema, document) == []
