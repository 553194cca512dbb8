"""nginx and HAProxy on loopback, with the configurations that people are given."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.answers import free_port
from tests.support.ports import listening
from tests.support.server import Running

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
_PORTS: Final = re.compile(r"127\.0\.0\.1:([12]?[45]31[78])\b")
_NOBODY: Final = 65534
_START_SECONDS: Final = 20
_TRIES: Final = 5


class Hop(NamedTuple):
    """Where a hop listens: ``HOST:PORT``."""

    grpc: str
    http: str


@contextmanager
def nginx(backend: Running, edit: Callable[[str], str] = str) -> Iterator[Hop]:
    """Nginx with ``deploy/nginx.conf``, changed by ``edit``."""
    config = edit((DEPLOY / "nginx.conf").read_text())
    with _running(config, _one(backend), _nginx_command) as hop:
        yield hop


@contextmanager
def replicas(behind: Mapping[str, str]) -> Iterator[Hop]:
    """Nginx with ``collector/replicas/nginx.conf``; ``behind``: port there to ``HOST:PORT`` here.

    The hop is what services send to.
    """
    config = (ROOT / "collector" / "replicas" / "nginx.conf").read_text()
    with _running(config, behind, _nginx_command) as hop:
        yield hop


@contextmanager
def haproxy(backend: Running, edit: Callable[[str], str] = str) -> Iterator[Hop]:
    """HAProxy with ``deploy/haproxy.cfg``, changed by ``edit``."""

    def write(folder: Path, config: str) -> list[str]:
        (folder / "haproxy.cfg").write_text(config)
        return [_program("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]

    with _running(edit((DEPLOY / "haproxy.cfg").read_text()), _one(backend), write) as hop:
        yield hop


def _one(backend: Running) -> dict[str, str]:
    return {"5317": backend.grpc, "5318": backend.http}


def _nginx_command(folder: Path, config: str) -> list[str]:
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "flowmark.conf").write_text(config)
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid;\nworker_processes 1;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}include {folder}/flowmark.conf;\n}}\n"
    )
    # The binary is named: as root Popen looks programs up before it becomes somebody else.
    return [
        *(_program("nginx"), "-p", str(folder), "-e", "stderr"),
        *("-c", str(folder / "nginx.conf"), "-g", "daemon off;"),
    ]


def _port(ports: dict[str, str], match: re.Match[str]) -> str:
    return ports[match[1]]


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None
    return found


@contextmanager
def _running(
    config: str, behind: Mapping[str, str], write: Callable[[Path, str], list[str]]
) -> Iterator[Hop]:
    """The process on free ports, as nobody where this is root; other ports if they were taken."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(_TRIES):
            hop = Hop(_free(), _free())
            ports = {**behind, "4317": hop.grpc, "4318": hop.http}
            command = write(folder, _PORTS.sub(partial(_port, ports), config))
            process = _start(command, folder)
            try:
                if listening(process, hop, _START_SECONDS):
                    yield hop
                    return
            finally:
                process.terminate()
                process.wait(_START_SECONDS)
    message = f"{command[0]} did not start: {(folder / 'log').read_text()}"
    raise AssertionError(message)


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, _NOBODY, _NOBODY)
    user = _NOBODY if os.geteuid() == 0 else None
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )


def _free() -> str:
    return f"127.0.0.1:{free_port()}"
