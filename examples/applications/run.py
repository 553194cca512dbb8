"""Two public applications that retry, recorded by nothing but an install.

`aws` (awscli, by botocore) copies an object, and `tap-dbt` (by singer-sdk and backoff) reads an
API, each from a service on loopback that answers its first two requests with 503. Both are
installed from the package index, with what is to be tried, into a new environment, and started
under `opentelemetry-instrument`; nothing of them is changed. With a backend running:

    pip install build
    python -m build --wheel
    flowmark-otel serve --insecure-no-auth                     # in a terminal of its own
    python examples/applications/run.py dist/*.whl

It prints the attempts that the backend has of each, and fails where they are not there. The
backend is FLOWMARK_ENDPOINT (http://127.0.0.1:4318).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
import venv
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

BACKEND = os.environ.get("FLOWMARK_ENDPOINT", "http://127.0.0.1:4318")
APPLICATIONS = ("awscli==1.46.3", "tap-dbt==0.17.0", "opentelemetry-distro")
UNAVAILABLE = 2


class Service(BaseHTTPRequestHandler):
    """Unavailable at the first requests of each application, told apart by their paths."""

    asked: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        """Answer with 503, then with an object or an empty list."""
        application = self.path.split("/")[1]
        self.asked[application] += 1
        well = self.asked[application] > UNAVAILABLE
        body = (b"content" if application == "bucket" else b'{"data": []}') if well else b""
        self.send_response(200 if well else 503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - as above

    def log_message(self, *_: object) -> None:
        """Say nothing: the attempts tell it."""


def install(folder: Path, wheel: str) -> Path:
    """The programs of a new environment with the wheel and the applications."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, wheel, *APPLICATIONS], check=True)  # noqa: S603 - what is named here
    return programs


def start(programs: Path, command: list[str], **more: str) -> None:
    """Run an application to its end, as an operator would who wants its retries seen."""
    name = command[0]
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        "FLOWMARK_ENDPOINT": BACKEND,
        "OTEL_SERVICE_NAME": name,
        **dict.fromkeys(
            ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"), "none"
        ),
        **more,
    }
    # What follows the two dashes is the application's, though its options look like ours.
    whole = [str(programs / "opentelemetry-instrument"), "--", str(programs / name), *command[1:]]
    done = subprocess.run(whole, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - as above
    if done.returncode:
        sys.exit(done.stderr)


def get(path: str, **query: str) -> Any:  # noqa: ANN401 - JSON
    """The items of a list of the backend's API."""
    headers = {}
    if os.environ.get("FLOWMARK_API_KEY"):
        headers["authorization"] = f"Bearer {os.environ['FLOWMARK_API_KEY']}"
    address = f"{BACKEND}/api/v1{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:  # noqa: S310 - the backend
        return json.load(answer)["items"]


def show(workflow: str) -> bool:
    """Print the attempts of an application's latest retries; whether it has the three."""
    for run in get("/runs", workflow=workflow, has_retries="true", limit="1"):
        for group in get(f"/runs/{run['key']}/attempts"):
            print(workflow, group["operation"], group["verdict"])
            for each in group["attempts"]:
                error = each["error"]["code"] if each["error"] else ""
                print(f"  {each['number']} of {each['limit']} {each['status']} {error}")
            return len(group["attempts"]) == UNAVAILABLE + 1
    print(workflow, "has no retries")
    return False


def main(wheel: str) -> int:
    """Install, run, and look."""
    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{service.server_port}"
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        programs = install(folder / "environment", wheel)
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        copy = ["aws", "--endpoint-url", address, "s3", "cp", "s3://bucket/key", "-"]
        start(programs, copy, AWS_DEFAULT_REGION="eu-north-1", **keys)
        config = folder / "config.json"
        told = {"api_key": "k", "account_ids": ["1"], "base_url": f"{address}/api/v2"}
        config.write_text(json.dumps(told))
        start(programs, ["tap-dbt", "--config", str(config)])
    service.shutdown()
    return 0 if all([show("aws"), show("tap-dbt")]) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
