"""Servers and their workers: stopped by SIGTERM, and killed (docs/processes.md)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.answers import free_port
from tests.support.process_apps import HOOKS
from tests.support.process_models import BIN, Web, deliver, starting
from tests.support.serving import Serving

pytestmark = pytest.mark.timeout(120)

WSGI: Final = "tests.support.process_apps.web:application"
ASGI: Final = "tests.support.process_apps.web:asgi"
IMPORT: Final = "at-import"


class Model(NamedTuple):
    """How a server is started and stopped; ``hooks`` is how many processes run exit hooks.

    ``env``: what the program is told. The run that is recorded where the program is loaded is
    expected once, whatever forks.
    """

    command: tuple[str, ...]
    hooks: int
    code: int = 0
    env: tuple[tuple[str, str], ...] = ()


def gunicorn(*more: str) -> tuple[str, ...]:
    """Two workers of gunicorn."""
    return (str(BIN / "gunicorn"), "--workers", "2", "--bind", "127.0.0.1:{port}", *more, WSGI)


def uvicorn(*more: str) -> tuple[str, ...]:
    """An ASGI server."""
    return (str(BIN / "uvicorn"), "--port", "{port}", *more, ASGI)


def uwsgi(*more: str) -> tuple[str, ...]:
    """Two workers of uWSGI, which load the application before they fork."""
    own = ("--master", "--die-on-term", "--need-app", "--processes", "2", "--enable-threads")
    place = ("--http-socket", "127.0.0.1:{port}", "--wsgi", "tests.support.process_apps.web")
    return (str(BIN / "uwsgi"), *own, *place, *more)


AT_IMPORT = (("RECORD_AT_IMPORT", "1"),)
FLUSHING = (("FLUSH_AT_THE_END", "1"),)
MODELS: Final = {
    "gunicorn": Model(gunicorn(), 2),
    "gunicorn --preload": Model(gunicorn("--preload"), 3, env=AT_IMPORT),
    "gunicorn -k gthread": Model(gunicorn("--worker-class", "gthread"), 2),
    "gunicorn -k gevent": Model(gunicorn("--worker-class", "gevent"), 2),
    "uvicorn": Model(uvicorn(), 1, -signal.SIGTERM, FLUSHING),
    "uvicorn --workers": Model(uvicorn("--workers", "2"), 2, 0, FLUSHING),
    "uWSGI": Model(uwsgi(), 2),
    "uWSGI with hooks": Model(uwsgi("--py-call-uwsgi-fork-hooks"), 2, env=AT_IMPORT),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_stop_delivers_and_a_spool_survives_a_kill(
    name: str, serving: Serving, tmp_path: Path
) -> None:
    """A22, E1: SIGTERM flushes in every worker; the next process delivers for killed ones."""
    model = MODELS[name]
    port, other = free_port(), free_port()
    command, again = (
        [each.format(port=number) for each in model.command] for number in (port, other)
    )
    env, spool = dict(model.env), tmp_path / "spool"
    with (
        starting(command, tmp_path / "stopped", serving, **env) as stopped,
        starting(
            again, tmp_path / "killed", serving, FLOWMARK_SPOOL_DIR=str(spool), **env
        ) as killed,
    ):
        expected = [*([IMPORT] if "RECORD_AT_IMPORT" in env else []), "one", "ready", "two"]
        for web in (Web(port), Web(other)):
            web.ready()
            assert web.ask("one").isdigit()
            assert web.ask("two").isdigit()
        killed.kill()
        killed.open()
        stopped.signal(signal.SIGTERM)
        stopped.wait_for(HOOKS, 1 if "gunicorn" in name else model.hooks)
        stopped.open()
        assert stopped.ended() == model.code, stopped.read()
        assert stopped.hooks() == model.hooks
        assert killed.hooks() == 0
        deliver(spool, tmp_path, serving)
        assert stopped.recorded() == expected
        assert killed.recorded() == expected


def test_uvicorn_alone_runs_no_exit_hooks(serving: Serving, tmp_path: Path) -> None:
    """A22: it ends by the signal that stopped it: without a flush of its own what waits is lost."""
    port = free_port()
    command = [each.format(port=port) for each in uvicorn()]
    with starting(command, tmp_path / "stopped", serving) as stopped:
        Web(port).ready()
        stopped.signal(signal.SIGTERM)
        assert stopped.ended() == -signal.SIGTERM
        stopped.open()
        assert stopped.hooks() == 0
        assert stopped.recorded() == []
