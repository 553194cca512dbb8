"""The Kafka broker of ``collector/kafka``: fetched once, on free ports, killed and restarted."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.answers import free_port
from tests.support.locking import locked
from tests.support.ports import listening

FOLDER: Final = Path(__file__).resolve().parents[2] / "collector" / "kafka"
GROUP: Final = "flowmark"
_FETCH_SECONDS: Final = 400
_START_SECONDS: Final = 120
_COMMAND_SECONDS: Final = 120
_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
# As the README starts it; compiled less, it listens in half of the time.
_JAVA: Final = (
    "java",
    "-XX:TieredStopAtLevel=1",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def fetched(kept: Path) -> Path:
    """The folder of the jars, as ``make kafka`` fetches them; one for each state of the pom."""
    pom = FOLDER / "pom.xml"
    made = kept / f"kafka-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    with locked(kept):
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=kept) as name:
                folder = Path(name)
                shutil.copy(pom, folder)
                command = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies"]
                subprocess.run(
                    [*command, "-DincludeScope=runtime", "-DoutputDirectory=jars"],
                    cwd=folder,
                    check=True,
                    timeout=_FETCH_SECONDS,
                )
                (folder / "jars").replace(made)
    return made


class Offsets(NamedTuple):
    """Of all partitions together: what the group has committed, and where they end."""

    committed: int
    end: int


class Broker:
    """One broker with what it keeps in ``folder``, at ``address``; restarted on the same one."""

    def __init__(self, jars: Path, folder: Path) -> None:
        self._env = {**os.environ, "CLASSPATH": str(jars / "*")}
        self._folder = folder
        self._config = folder / "server.properties"
        self._log = folder / "broker.log"
        self.address = f"127.0.0.1:{free_port()}"
        text = (FOLDER / "server.properties").read_text("utf-8")
        for theirs, ours in (
            ("127.0.0.1:9092", self.address),
            ("127.0.0.1:9093", f"127.0.0.1:{free_port()}"),
            (".tools/kafka-data", str(folder / "data")),
        ):
            assert theirs in text
            text = text.replace(theirs, ours)
        self._config.write_text(text)
        formatting = ("format", "--standalone", "--config", str(self._config))
        cluster = self._run("kafka.tools.StorageTool", "random-uuid").strip()
        self._run("kafka.tools.StorageTool", *formatting, "--cluster-id", cluster)
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, first or again."""
        command = [*_JAVA, "kafka.Kafka", str(self._config)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)
        if not listening(self.process, [self.address], _START_SECONDS):
            self.kill()
            raise AssertionError(self._log.read_text())
        return self.process

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(30)

    def offsets(self) -> Offsets:
        """What the group of ``from-kafka.yaml`` has committed, as Kafka's own command says it."""
        shown = self._run(
            _GROUPS, "--bootstrap-server", self.address, "--describe", "--group", GROUP
        )
        rows = [line.split() for line in shown.splitlines() if line.startswith(f"{GROUP} ")]
        return Offsets(
            sum(int(row[3]) for row in rows if row[3] != "-"), sum(int(row[4]) for row in rows)
        )

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [*_JAVA, program, *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
