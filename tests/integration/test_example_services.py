"""The services among the examples, under ``opentelemetry-instrument``, with a CRM that is flaky.

Each is started as its header says, first the one that imports nothing of ours, then the one with
the handle, and what a real ``serve`` has of it is read back.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from tests.support.instrumented import needs_entry_points
from tests.support.programs import Recorded, environment
from tests.support.services import EXAMPLES, crm, instrumented, module, service
from tests.support.serving import Serving


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A backend with keys."""
    needs_entry_points()
    with Serving(tmp_path_factory.mktemp("services") / "s.db") as found:
        yield found


@pytest.fixture(scope="module")
def crm_url() -> Iterator[str]:
    """The CRM; it fails once for each batch, so every test has batches of its own."""
    with crm() as address:
        yield address


def told_whole(serving: Serving, run_id: str, batch: str) -> dict[str, Any]:
    """The run, which has a failed and a completed attempt and nothing else."""
    recorded = Recorded(serving)
    [run] = recorded.runs(run_id=run_id)
    assert (run["status"], run["outcome"]) == ("completed", "complete")
    assert recorded.attempts(run) == [
        ("push-to-crm", batch, 1, "failed", "CRM_UNAVAILABLE"),
        ("push-to-crm", batch, 2, "completed", None),
    ]
    assert run["counts"]["occurrences"] == 2
    return run


@dataclass(frozen=True)
class Framework:
    """How the services of a folder are started, ``{}`` being the module, and what they answer."""

    folder: str
    arguments: tuple[str, ...]
    ready: str = r"Uvicorn running on (\S+)"
    settings: str = "UNUSED"
    paths: tuple[str, ...] = ("sync",)


FASTAPI: Final = Framework("fastapi_service", ("uvicorn", "{}:app", "--port", "0"))
DJANGO: Final = Framework(
    "django_service",
    ("uvicorn", "--factory", "django.core.asgi:get_asgi_application", "--port", "0"),
    settings="DJANGO_SETTINGS_MODULE",
    paths=("sync", "async"),
)
FLASK: Final = Framework(
    "flask_service", ("flask", "--app", "{}", "run", "--port", "0"), r"Running on (\S+)"
)


def answers(
    framework: Framework, name: str, serving: Serving, crm_url: str, folder: Path
) -> dict[str, Any]:
    """What a service answers to one request for each of its paths, by batch; then it is stopped."""
    env = instrumented(environment(folder, serving), crm_url, **{framework.settings: name})
    command = module(*(argument.format(name) for argument in framework.arguments))
    found = {}
    with service(EXAMPLES / framework.folder, env, framework.ready, *command) as started:
        for path in framework.paths:
            batch = f"{framework.folder}-{name}-{path}"
            answer = requests.post(f"{started.address}/{path}/{batch}", timeout=30)
            assert answer.status_code == 200, answer.text
            found[batch] = answer.json()
        said = started.stop(signal.SIGINT)
    assert "flowmark" not in said, said
    return found


# Flask's own is a program of another kind: test_no_code_service.py.
@pytest.mark.parametrize("framework", [FASTAPI, DJANGO], ids=["fastapi", "django"])
def test_attributes_are_enough(
    framework: Framework, serving: Serving, crm_url: str, tmp_path: Path
) -> None:
    """D2, A26: without a line of ours, one span of the framework is the run; sync and async."""
    for batch, answer in answers(framework, "app", serving, crm_url, tmp_path).items():
        run = told_whole(serving, answer["run_id"], batch)
        assert (run["workflow"], run["result"]) == ("crm-sync", {"batches": 1})
        assert run["defaulted"] == ["flowmark.run.id", "flowmark.workflow.name"]


@pytest.mark.parametrize("framework", [FLASK, FASTAPI, DJANGO], ids=["flask", "fastapi", "django"])
def test_the_handle_tells_which_try_it_is(
    framework: Framework, serving: Serving, crm_url: str, tmp_path: Path
) -> None:
    """A26, B1, B3: code within a try has its key, the same for both; records have its digest."""
    for batch, answer in answers(framework, "with_handle", serving, crm_url, tmp_path).items():
        assert (answer["tries"], answer["keys"]) == (2, 1)
        run = told_whole(serving, answer["run_id"], batch)
        assert (run["workflow"], run["result"]) == ("crm.sync", {"batches": 1})
        assert run["defaulted"] == []
        found = serving.get(f"/runs/{run['key']}/operations", serving.keys[1])["items"]
        [key] = {operation["attempt"]["idempotency_key"] for operation in found}
        assert key.startswith("sha256:")


def celery(name: str, serving: Serving, crm_url: str, folder: Path, **more: str) -> list[str]:
    """Ids of two tasks: one that the CRM takes at the second try, one that it never takes."""
    env = instrumented(
        environment(folder, serving), crm_url, QUEUE_FOLDER=str(folder / "queue"), **more
    )
    place = EXAMPLES / "celery_worker"

    def send(batch: str) -> str:
        call = (sys.executable, "-m", "celery", "-A", name, "call", "tasks.sync")
        sent = subprocess.run(
            [*call, "--args", f'["{batch}"]'],
            cwd=place,
            env=env,
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        )
        return sent.stdout.strip()

    worker = module("celery", "-A", name, "worker", "--pool", "solo", "--loglevel", "INFO")
    with service(place, env, r"(\S+) ready\.", *worker) as found:
        taken, lost = send(name), send(f"lost-{name}")
        found.wait_for(rf"tasks\.sync\[{taken}\] succeeded")
        found.wait_for(rf"tasks\.sync\[{lost}\] raised")
        said = found.stop(signal.SIGTERM)
    ours = [line for line in said.splitlines() if re.match(r"\S.*flowmark", line)]
    assert ours == []  # nothing to report; a traceback may pass through us
    return [taken, lost]


def test_celery_needs_no_line_of_code(serving: Serving, crm_url: str, tmp_path: Path) -> None:
    """D2, E3: Celery's retries are attempts, recorded by install and environment alone."""
    taken, lost = celery("tasks", serving, crm_url, tmp_path)
    recorded = Recorded(serving)
    told = {taken: ["failed", "completed"], lost: ["failed", "failed", "failed"]}
    for group, statuses in told.items():
        [run] = recorded.runs(q=group)
        assert (run["workflow"], run["run_id"], run["status"]) == ("crm-sync", group, "unknown")
        found = recorded.attempts(run)
        assert {attempt[:2] for attempt in found} == {("tasks.sync", group)}
        assert [attempt[2] for attempt in found] == list(range(1, len(statuses) + 1))
        assert [attempt[3] for attempt in found] == statuses


def test_celery_with_the_handle(serving: Serving, crm_url: str, tmp_path: Path) -> None:
    """A26, A14, B3: each execution continues the run, with one key; the last one ends it."""
    name = "tasks_with_handle"
    alone = {"FLOWMARK_SIGNALS": "none", "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "flowmark_celery"}
    taken, lost = celery(name, serving, crm_url, tmp_path, **alone)
    run = told_whole(serving, taken, name)
    assert (run["workflow"], run["defaulted"], len(run["ends"])) == ("crm.sync", [], 1)
    assert run["result"] == {"keys": 1}
    recorded = Recorded(serving)
    [run] = recorded.runs(run_id=lost)
    assert (run["workflow"], run["status"], run["outcome"]) == ("crm.sync", "failed", "none")
    assert recorded.attempts(run) == [
        ("push-to-crm", f"lost-{name}", number, "failed", "CRM_UNAVAILABLE") for number in (1, 2, 3)
    ]
    for task in (taken, lost):  # told by the task, and by nothing else beside it
        assert len(recorded.runs(q=task)) == 1
