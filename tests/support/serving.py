"""A backend as a person runs it: the command line in a process of its own, on loopback."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import Any, Final

import requests
from typing_extensions import Self

from tests.support.urls import Place, url_of

CLI: Final = (sys.executable, "-m", "flowmark_otel.cli")
_READY: Final = re.compile(r"ready grpc=(\S+) http=(\S+)")
_KEY: Final = re.compile(r"fmk_[a-z0-9]+_[A-Za-z0-9]+")
_STOP_SECONDS: Final = 20
_ANSWER_SECONDS: Final = 30


def run_cli(
    *arguments: str, env: dict[str, str] | None = None, timeout: float = 50
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end; output as text."""
    return subprocess.run(
        [*CLI, *arguments], capture_output=True, text=True, env=env, timeout=timeout, check=False
    )


class Asking:
    """Questions to a backend at ``http``, ``HOST:PORT``."""

    def __init__(self, http: str) -> None:
        self.http = http

    @property
    def endpoint(self) -> str:
        """The HTTP endpoint."""
        return f"http://{self.http}"

    def get(self, path: str, key: str | None = None, **query: object) -> Any:
        """The JSON of a GET below ``/api/v1``; fails unless it is a success."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        answer = requests.get(
            f"{self.endpoint}/api/v1{path}",
            params={name: str(value) for name, value in query.items()},
            headers=headers,
            timeout=_ANSWER_SECONDS,
        )
        assert answer.status_code == requests.codes.ok, answer.text
        return answer.json()

    def post(self, signal_name: str, body: bytes, content_type: str) -> requests.Response:
        """The answer to an OTLP request over HTTP, without a key."""
        return requests.post(
            f"{self.endpoint}/v1/{signal_name}",
            data=body,
            headers={"content-type": content_type},
            timeout=_ANSWER_SECONDS,
        )


class Serving(Asking):
    """``flowmark-otel serve`` on a store, for one ``with`` block.

    ``lines`` is what it printed up to and including the ready line, ``keys`` the keys in it;
    ``http`` and ``grpc`` are ``HOST:PORT``. ``under`` is a command that runs it,
    ``errors`` where its standard error goes.
    """

    def __init__(
        self,
        store: Place,
        *arguments: str,
        under: Sequence[str] = (),
        errors: Path | None = None,
    ) -> None:
        super().__init__("")
        self._under = under
        self.url = url_of(store)
        self._arguments: Sequence[str] = arguments
        self._own = NamedTemporaryFile()  # noqa: SIM115  the block of ``with`` closes it
        self._errors = errors or Path(self._own.name)
        self.lines: list[str] = []
        self.grpc = ""

    def __enter__(self) -> Self:
        command = [*self._under, *CLI, "serve", "--db", self.url, "--grpc", "127.0.0.1:0"]
        command += ["--http", "127.0.0.1:0", *self._arguments]
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            ready = _READY.fullmatch(self.lines[-1])
            if ready:
                self.grpc, self.http = ready.groups()
                return self
        message = f"serve ended with {self.process.wait()}: {self._errors.read_text()}"
        raise AssertionError(message)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            self._own.close()

    def stop(self) -> int:
        """End the process as a supervisor does; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    @property
    def keys(self) -> list[str]:
        """The keys that were printed, in order: ingest, read."""
        return list(dict.fromkeys(_KEY.findall("\n".join(self.lines))))
