"""What README and CONTRIBUTING tell people to do works as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowmark_otel.config import ClientOptions, ProxyOptions, declared, environment_name
from flowmark_otel.proxy import AsgiProxy, WsgiProxy
from tests.support.serving import Serving, run_cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
BROWSERS = (ROOT / "docs" / "browsers.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_quick_start_records_what_it_says(tmp_path: Path) -> None:
    """D4: the quick start, as pasted, records two attempts with the stock SDK alone."""
    program, _ = blocks("python")
    assert "flowmark_otel" not in program
    with Serving(tmp_path / "store.db", "--insecure-no-auth") as backend:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": backend.endpoint}
        subprocess.run([sys.executable, "-c", program], env=os.environ | endpoint, check=True)
        runs = backend.get("/runs")["items"]
        assert [(run["workflow"], run["run_id"]) for run in runs] == [("crm.sync", "2026-03-01")]
        (group,) = backend.get(f"/runs/{runs[0]['key']}/attempts")["items"]
        assert [attempt["status"] for attempt in group["attempts"]] == ["failed", "completed"]
        assert group["attempts"][0]["error"]["code"] == "CRM_UNAVAILABLE"
        assert group["verdict"] == "after_retry"
        listed = run_cli("runs", "list", "--endpoint", backend.endpoint)
        assert "crm.sync" in listed.stdout


def test_python_api_records_what_it_says(tmp_path: Path) -> None:
    """A2: the lines of the Python section, as pasted, record two attempts and are acknowledged."""
    _, program = blocks("python")
    with Serving(tmp_path / "store.db", "--insecure-no-auth") as backend:
        endpoint = {"FLOWMARK_ENDPOINT": backend.endpoint}
        subprocess.run([sys.executable, "-c", program], env=os.environ | endpoint, check=True)
        [run] = backend.get("/runs")["items"]
        assert (run["workflow"], run["status"], run["result"]) == (
            "crm.sync",
            "completed",
            {"imported": 3},
        )
        (group,) = backend.get(f"/runs/{run['key']}/attempts")["items"]
        assert [attempt["status"] for attempt in group["attempts"]] == ["failed", "completed"]


def test_every_setting_of_the_client_is_told() -> None:
    """Contract, section 6: the table of variables names each that has an effect, and no other."""
    told = set(re.findall(r"`(FLOWMARK_[A-Z_]+)`", README.partition("| variable |")[2]))
    there = {environment_name(ClientOptions, name) for name in declared(ClientOptions)}
    assert told == there


def test_command_table_is_the_command_line() -> None:
    """The table of commands names each command that there is, and no other."""
    told = re.findall(r"^\| `flowmark-otel ([a-z]+)` \|", README, re.MULTILINE)
    helped = run_cli("--help").stdout.partition("Commands:")[2]
    assert sorted(told) == sorted(re.findall(r"^  ([a-z]+)", helped, re.MULTILINE))


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_make_targets_exist(text: str) -> None:
    """Every `make` command that is told names a target of the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = set(re.findall(r"\bmake ([a-z]+)\b", "\n".join(blocks("console", text))))
    assert told
    assert told <= targets


def test_every_setting_of_the_proxy_is_told() -> None:
    """A20: its table names every argument and variable, and no other."""
    told = set(re.findall(r"^\| `([a-z_]+)` \| `(FLOWMARK_PROXY_[A-Z_]+)`", BROWSERS, re.MULTILINE))
    names = declared(ProxyOptions)
    assert told == {(name, environment_name(ProxyOptions, name)) for name in names}


@pytest.mark.parametrize("program", blocks("python", BROWSERS), ids=["asgi", "wsgi"])
def test_sites_with_a_proxy_are_made_as_told(program: str) -> None:
    """A20: the lines for a site, as pasted, make one with the list that they name."""
    found: dict[str, Any] = {"__name__": "site"}
    exec(program, found)  # noqa: S102 - the text of our own documentation
    proxy = found["app"] if isinstance(found["app"], AsgiProxy) else found["app"].wsgi_app
    assert isinstance(proxy, AsgiProxy | WsgiProxy)
    assert proxy._forwarder._allowed == {"shop.checkout"}
    proxy.close()
