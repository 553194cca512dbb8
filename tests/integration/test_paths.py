"""No path comes from data, and no address leads to a file that is not served."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from flowmark_otel import names
from tests.support.payloads import JSON, as_json, request, span
from tests.support.programs import environment, run
from tests.support.serving import Serving

OUTSIDE: Final = ("../../outside", "/tmp/flowmark-outside", "..\\outside", "a/../../b", "~/outside")  # noqa: S108 - it must not be made
ADDRESSES: Final = (
    "/static/../app.py",
    "/static/..%2fapp.py",
    "/static/%2e%2e/app.py",
    "/static/....//app.py",
    "/static//etc/passwd",
    "/static/..%5capp.py",
    "/runs/..%2f..%2fapp.py",
    "/p/..%2f../runs",
    "/api/v1/runs/..%2f..%2fetc%2fpasswd",
)
PROGRAM: Final = """
import flowmark_otel as flowmark

for name in {names!r}:
    flow = flowmark.workflow(name, run_id=name)
    flow.operation(name, attempt=flowmark.Attempt(name, 1)).complete()
    flow.done(outcome="complete")
try:
    flowmark.shutdown(timeout=1)
except flowmark.DeliveryError:
    pass
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``HOST:PORT`` of a backend."""
    with Serving(tmp_path_factory.mktemp("paths") / "s.db", "--insecure-no-auth") as backend:
        yield backend.http


def tree(folder: Path) -> set[str]:
    """All that is below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_names_that_are_paths_make_no_file(tmp_path: Path) -> None:
    """Security, "paths": what is sent or recorded under such names is kept in the store alone."""
    home = tmp_path / "a" / "b"
    store, spool = home / "store", home / "spool"
    store.mkdir(parents=True)
    with Serving(store / "s.db", "--insecure-no-auth") as backend:
        for number, name in enumerate(OUTSIDE, 1):
            own = dict.fromkeys((names.WORKFLOW_NAME, names.RUN_ID, names.OPERATION_NAME), name)
            given = {**own, names.ATTEMPT_GROUP_ID: name, names.ATTEMPT_NUMBER: 1}
            body = as_json(request([span(number, given)], service=name))
            assert backend.post("traces", body, JSON).json()["stored"] == "2"
        assert len(backend.get("/runs")["items"]) == len(OUTSIDE)
        assert not [each for each in tree(store) if not each.startswith("s.db")]
    env = environment(
        home, None, FLOWMARK_ENDPOINT="http://127.0.0.1:9", FLOWMARK_SPOOL_DIR=str(spool)
    )
    run(home, PROGRAM.format(names=OUTSIDE), env)
    assert any(spool.glob("*.spool"))
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"b"}
    assert not [each for each in tree(home) if "outside" in each]
    assert not Path("/tmp/flowmark-outside").exists()  # noqa: S108 - as above


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_leads_to_no_other_file(address: str, served: str) -> None:
    """Security, "paths": what climbs out of the folder of static files is not found."""
    connection = http.client.HTTPConnection(served, timeout=30)
    connection.request("GET", address)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status in {302, 303, 307, 400, 404}
    assert b"import" not in content
    assert b"root:" not in content
