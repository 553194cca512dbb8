"""A PostgreSQL server of the tests' own: made in a temporary folder, ended by its process id."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import psycopg

from flowmark_otel.backend.store import open_store, schema

_USER: Final = "postgres"
_WAIT_SECONDS: Final = 30
_SETTINGS: Final = {
    "fsync": "off",  # a killed server loses nothing by it; a machine without power would
    "max_connections": "60",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
}


def binaries() -> Path:
    """The folder of the newest server that is installed; fails where there is none."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max(versions, key=lambda path: float(path.parts[-3])).parent


class Cluster:
    """One server: started, stopped, killed and restarted at will; a database a test.

    As root it runs as the user of the Debian package, since the server refuses to be root's.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self._bin = binaries()
        self._data = folder / "data"
        self._folder = folder
        self._serial = count(1)
        self._filled = ""
        self._free: list[str] = []
        self._owner: tuple[int | None, int | None] = (None, None)
        if os.geteuid() == 0:
            account = pwd.getpwnam(_USER)
            self._owner = (account.pw_uid, account.pw_gid)
            os.chown(folder, account.pw_uid, account.pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        arguments = (
            "-D",
            self._data,
            "-U",
            _USER,
            "-E",
            "UTF8",
            "--no-locale",
            "-N",
            "-A",
            "trust",
        )
        subprocess.run(
            [self._bin / "initdb", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            env=_environment(),
            cwd=folder,
            user=self._owner[0],
            group=self._owner[1],
        )
        lines = "".join(f"{name} = {value}\n" for name, value in {**_SETTINGS, **settings}.items())
        with (self._data / "postgresql.conf").open("a") as config:
            config.write(lines)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(self._bin / "postgres", "-D", self._data, "-p", str(self.port)),
                    *("-h", "127.0.0.1", "-k", self._folder),
                ],
                stdout=log,
                stderr=log,
                env=_environment(),
                user=self._owner[0],
                group=self._owner[1],
            )
        self._wait(answering=True)

    def stop(self, signal_number: int = signal.SIGINT) -> None:
        """End it: SIGINT ends connections and stops, SIGKILL leaves recovery to the next start."""
        if self.process is None:
            return
        self.process.send_signal(signal_number)
        self.process.wait(_WAIT_SECONDS)
        self._wait(answering=False)  # those it leaves behind notice that it is gone
        self.process = None

    def url(self, database: str) -> str:
        """The URL of a database of this server, by TCP."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str) -> str:
        """The same by its socket."""
        return f"postgresql://{_USER}@/{database}?host={self._folder}&port={self.port}"

    def database(self, options: str = "") -> str:
        """Make an empty database; its URL."""
        name = f"test_{next(self._serial)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def store(self) -> str:
        """A database that holds an empty store already: one given back, or a copy; its URL."""
        if self._free:
            url = self._free.pop()
            with psycopg.connect(url) as connection:
                connection.execute(_emptied())
            return url
        if not self._filled:
            open_store(url := self.database()).close()
            self._filled = url.rpartition("/")[2]
        return self.database(f"TEMPLATE {self._filled}")

    def give_back(self, url: str) -> None:
        """Let another test have a store, which is ten times as fast as to make one."""
        self._free.append(url)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as an administrator; its rows."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _wait(self, *, answering: bool) -> None:
        """Wait until the server answers, or no process of it does any more."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while self._answers() is not answering:
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.02)  # a server tells nobody when it is ready

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def _emptied() -> str:
    """Empties a store; TRUNCATE and a new database both take twenty times as long."""
    tables = [table for table in schema.metadata.sorted_tables if table is not schema.meta]
    serial = [table.name for table in tables if "id" in table.c and table is not schema.keys]
    free = "UPDATE meta SET value = '- 0' WHERE name = 'sweeper'"  # the lease of retention
    return "; ".join(
        [free]
        + [f"DELETE FROM {table.name}" for table in reversed(tables)]  # noqa: S608  own names
        + ["DELETE FROM search"]  # full text is no table of the schema's
        + [f"ALTER SEQUENCE IF EXISTS {name}_id_seq RESTART" for name in serial]
    )


def _environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


@contextmanager
def cluster(**settings: str) -> Iterator[Cluster]:
    """A running server in a folder of its own, short enough for the path of a socket."""
    with tempfile.TemporaryDirectory(prefix="flowmark-pg-") as folder:
        made = Cluster(Path(folder), **settings)
        made.start()
        try:
            yield made
        finally:
            made.stop()
