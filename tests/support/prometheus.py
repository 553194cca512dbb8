"""Debian's Prometheus on loopback: what it scrapes, the rules it goes by, what it is asked."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import requests
import yaml

from tests.support.answers import free_port
from tests.support.fleet import until

SHORTER: Final = 100
"""What the durations of rules are divided by: five minutes are three seconds."""

SCRAPED_EVERY: Final = "500ms"

_MILLISECONDS: Final = {"m": 60_000, "h": 3_600_000}
_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 30
_ANSWER_SECONDS: Final = 20


def shortened(rules: str) -> str:
    """A file of rules with each duration a hundredth of what it was, and nothing else changed.

    Durations are the ranges in brackets, what follows ``offset``, and ``for``; thresholds, metrics
    and labels stay, whatever they measure.
    """
    document = yaml.safe_load(rules)
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(
                r"(\[|offset )(\d+[mh])", lambda found: found[1] + _short(found[2]), rule["expr"]
            )
            if "for" in rule:
                rule["for"] = _short(rule["for"])
    return yaml.safe_dump(document, sort_keys=False)


def _short(duration: str) -> str:
    return f"{int(duration[:-1]) * _MILLISECONDS[duration[-1]] // SHORTER}ms"


class Prometheus:
    """A running one, at ``address``."""

    def __init__(self, address: str) -> None:
        self.address = address

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an instant query: ``metric`` has the labels; fails where it is refused."""
        answer = requests.get(
            f"http://{self.address}/api/v1/query", {"query": expr}, timeout=_ANSWER_SECONDS
        ).json()
        assert answer["status"] == "success", f"{expr}: {answer['error']}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def fired(self, alert: str = ".*") -> list[dict[str, str]]:
        """The labels of each alert that was firing at any time of the last ten minutes."""
        asked = f'count_over_time(ALERTS{{alertname=~"{alert}",alertstate="firing"}}[10m])'
        return [each["metric"] for each in self.query(asked)]

    def alerts(self) -> dict[str, str]:
        """What is said of each alert that is pending or firing: its name and its state."""
        answer = requests.get(f"http://{self.address}/api/v1/alerts", timeout=_ANSWER_SECONDS)
        return {
            each["labels"]["alertname"]: each["state"] for each in answer.json()["data"]["alerts"]
        }

    def values(self, label: str, metric: str) -> list[str]:
        """The values of a label of a metric."""
        answer = requests.get(
            f"http://{self.address}/api/v1/label/{label}/values",
            {"match[]": metric},
            timeout=_ANSWER_SECONDS,
        )
        found: list[str] = answer.json()["data"]
        return found


@contextmanager
def scraping(folder: Path, jobs: Mapping[str, Sequence[str]], rules: Path) -> Iterator[Prometheus]:
    """Prometheus with these jobs and the addresses of each, which need not be there yet."""
    configuration = {
        "global": {"scrape_interval": SCRAPED_EVERY, "evaluation_interval": SCRAPED_EVERY},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [*addresses]}]}
            for job, addresses in jobs.items()
        ],
    }
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = (
        *("prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"),
        f"--web.listen-address={address}",
    )
    log = folder / "prometheus.log"
    with log.open("wb") as output, subprocess.Popen(command, stderr=output) as process:
        try:
            until(lambda: _ready(address, process, log), _START_SECONDS)
            yield Prometheus(address)
            process.terminate()
            process.wait(_STOP_SECONDS)
        finally:
            process.kill()


def _ready(address: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return requests.get(f"http://{address}/-/ready", timeout=_ANSWER_SECONDS).ok
    except requests.ConnectionError:
        return False
