"""Every block of code in the documentation runs, or says what else shows that it is right."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.util.types import AttributeValue

from flowmark_otel.names import ATTEMPT_GROUP_ID, ATTEMPT_NUMBER
from tests.support.documents import DOCUMENTS, ROOT, Block, blocks, fenceless
from tests.support.serving import Serving, run_cli
from tests.support.spans import finished_spans

BIN: Final = Path(sys.executable).parent
TEST_README: Final = "tests/integration/test_readme.py runs it and looks at what came of it"
TEST_EXAMPLES: Final = "tests/integration/test_examples.py runs it with ports and keys of its own"
TEST_LANGUAGES: Final = "a part of an example, held to it by tests/integration/test_languages.py"
TEST_COLLECTOR: Final = "tests/integration/test_collector_readme.py runs it with other ports"
TEST_KAFKA: Final = "fixed ports; tests/integration/test_kafka.py runs all with others"
TEST_REPLICAS: Final = "fixed ports; tests/integration/test_replicas.py runs all with others"
TEST_DEPLOY: Final = "needs a container engine; tests/integration/test_deploy.py checks the files"
KEYS_CREATE: Final = (
    "flowmark-otel keys create --db sqlite:////var/lib/flowmark-otel/flowmark.db"
    " --project default --kind read"
)
STOCK_GRPC: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 python examples/stock_sdk.py --protocol grpc"
)

ELSEWHERE: Final = {
    ("README.md", "from opentelemetry import trace"): TEST_README,
    ("README.md", "import flowmark_otel as flowmark"): TEST_README,
    ("README.md", "make demo"): ".ci/run runs these targets",
    ("CONTRIBUTING.md", "make lint"): ".ci/run runs them; test_readme.py knows the targets",
    ("docs/adapters.md", "from flowmark_otel.adapters import operation_name"): (
        "a part of a program; tests/unit/test_adapters_tenacity.py runs such a block"
    ),
    ("docs/adapters.md", "pip install flowmark-otel opentelemetry-distro"): (
        "tests/integration/test_no_code_adapters.py runs programs like this one"
    ),
    ("docs/browsers.md", 'new OTLPTraceExporter({ url: "/v1/traces" });'): (
        "a part of a page; tests/browser/test_web_sdk.py builds and opens such a page"
    ),
    ("docs/browsers.md", "new OTLPTraceExporter({"): (
        "a part of a page; tests/browser/test_web_sdk.py builds and opens such a page"
    ),
    ("docs/browsers.md", "from starlette.applications import Starlette"): TEST_README,
    ("docs/browsers.md", "from flask import Flask"): TEST_README,
    ("docs/languages.md", 'ctx, span := s.tracer.Start(ctx, "push-to-crm",'): TEST_LANGUAGES,
    ("docs/languages.md", "Span span ="): TEST_LANGUAGES,
    ("docs/languages.md", "const attributes = {"): TEST_LANGUAGES,
    (
        "docs/languages.md",
        'with tracer.start_as_current_span("push-to-crm", attributes=attempt) as span:',
    ): TEST_LANGUAGES,
    (
        "docs/operations.md",
        "sqlite3 /var/lib/flowmark/flowmark.db \"VACUUM INTO '/backup/flowmark.db'\"",
    ): "tests/integration/test_serve_backup.py runs it on paths of its own",
    ("collector/README.md", "pip install '.[server,collector]'"): TEST_COLLECTOR,
    ("collector/README.md", "export FLOWMARK_API_KEY=fmk_…"): TEST_COLLECTOR,
    (
        "collector/README.md",
        "flowmark-otel replay dead-letters.jsonl --endpoint http://127.0.0.1:5318",
    ): "files that only a collector has; tests/integration/test_cli_replay.py runs the command",
    ("collector/otelcol/README.md", "make otelcol"): (
        "builds for minutes; tests/integration/test_stock_collector.py builds and runs the same"
    ),
    ("collector/kafka/README.md", "make otelcol kafka"): TEST_KAFKA,
    (
        "collector/kafka/README.md",
        ".tools/otelcol --config collector/kafka/to-kafka.yaml",
    ): TEST_KAFKA,
    (
        "collector/kafka/README.md",
        "java org.apache.kafka.tools.consumer.group.ConsumerGroupCommand \\",
    ): TEST_KAFKA,
    ("collector/replicas/README.md", "pip install '.[server,postgres,collector]'"): TEST_REPLICAS,
    ("collector/replicas/README.md", "export FLOWMARK_API_KEY=fmk_…"): TEST_REPLICAS,
    ("collector/rotel/README.md", "python3.11 -m venv /opt/rotel"): (
        "fixed paths and ports; tests/integration/test_rotel.py runs the agent with others"
    ),
    ("examples/README.md", STOCK_GRPC): TEST_EXAMPLES,
    (
        "examples/README.md",
        'export OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20fmk_…"',
    ): TEST_EXAMPLES,
    (
        "examples/flask_service/README.md",
        "export OTEL_SERVICE_NAME=crm-sync OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none",
    ): TEST_EXAMPLES,
    (
        "examples/flask_service/README.md",
        "curl -X POST http://127.0.0.1:5000/sync/customer-batch-42",
    ): TEST_EXAMPLES,
    (
        "examples/notebook/README.md",
        "pip install 'flowmark-otel[server]' notebook",
    ): "tests/integration/test_testing_notebook.py runs the notebook in a kernel",
    (
        "docs/retention.md",
        "flowmark-otel runs delete KEY",
    ): "tests/integration/test_cli_deleting.py runs both on a store that has such runs",
    ("deploy/README.md", "docker build --file deploy/Dockerfile --tag flowmark-otel ."): (
        TEST_DEPLOY
    ),
    ("deploy/README.md", "export POSTGRES_PASSWORD=…"): TEST_DEPLOY,
    (
        "deploy/README.md",
        KEYS_CREATE,
    ): "a store that only the service has; test_cli_deleting.py runs the command",
    ("deploy/README.md", "flowmark-otel serve --grpc 127.0.0.1:5317 --http 127.0.0.1:5318"): (
        "fixed ports; tests/integration/test_hops.py runs both hops with others"
    ),
}
"""Blocks that do not run here: document and first line, and what shows that they are right."""

BLOCKS: Final = [block for block in blocks() if (block.document, block.first) not in ELSEWHERE]
INSTALL: Final = re.compile(r"pip install .*flowmark-otel|pipx run")
SERVE: Final = re.compile(r"^(?:[A-Z_]+=\S+ )*flowmark-otel serve\b")


RUN_BY_README: Final = {
    block.text for block in blocks() if ELSEWHERE.get((block.document, block.first)) == TEST_README
}


def of(language: str) -> list[object]:
    """The blocks of a language that run here; one and the same text once."""
    found = {block.text: block for block in BLOCKS if block.language == language}
    return [
        pytest.param(block, id=f"{block.document}-{block.first}")
        for text, block in found.items()
        if text not in RUN_BY_README
    ]


def commands() -> list[str]:
    """Each command that is told; ``tests/packaging/test_wheel.py`` installs, also by pipx."""
    told = [each for block in BLOCKS if block.language == "console" for each in block.commands]
    return [command for command in dict.fromkeys(told) if not INSTALL.search(command)]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A backend without keys, as the quick start makes one."""
    with Serving(tmp_path_factory.mktemp("documents") / "s.db", "--insecure-no-auth") as found:
        yield found


@pytest.fixture
def environment(backend: Serving, tmp_path: Path) -> dict[str, str]:
    """What a program finds: our commands on the path, and where the backend is."""
    return {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLOWMARK_ENDPOINT": backend.endpoint,
        "OTEL_EXPORTER_OTLP_ENDPOINT": backend.endpoint,
        "FLOWMARK_SERVE_DB": f"sqlite:///{tmp_path}/own.db",
        "FLOWMARK_SERVE_GRPC": "127.0.0.1:0",
        "FLOWMARK_SERVE_HTTP": "127.0.0.1:0",
    }


def test_each_block_is_known() -> None:
    """E6: a block that does not run has a reason, and each reason a block."""
    there = {(block.document, block.first) for block in blocks()}
    assert set(ELSEWHERE) <= there
    assert {block.language for block in BLOCKS} == {"console", "promql", "python", "yaml"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_command_stands_outside_of_a_block(name: str) -> None:
    """E6: what is shown indented is a figure or an answer; commands are fenced, so they are run."""
    programs = r"(?:flowmark-otel|opentelemetry-instrument|python3?|pip|make|export|curl|docker)\b"
    bare = fenceless((ROOT / name).read_text("utf-8"))
    assert re.findall(rf"^ {{4}}(?:[A-Z_]+=\S+ )*{programs}.*$", bare, re.MULTILINE) == []


@pytest.mark.parametrize("block", of("python"))
def test_python_runs(block: Block, environment: dict[str, str], tmp_path: Path) -> None:
    """A26: what is shown in Python runs as pasted, and records where the environment says."""
    program = tmp_path / "program.py"
    # The application's own part, where a page shows only what to add to it.
    program.write_text(f"import flowmark_otel as flowmark\n\n{block.text}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", commands())
def test_commands_run(command: str, environment: dict[str, str], tmp_path: Path) -> None:
    """D5: what people are told to type works: commands end well, servers become ready."""
    attempt: dict[str, AttributeValue] = {ATTEMPT_GROUP_ID: "batch-42", ATTEMPT_NUMBER: 1}
    captured = encode_spans(finished_spans("push", attributes=attempt))
    (tmp_path / "traces.json").write_bytes(captured.SerializeToString())
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if SERVE.match(command):
        _serves(command, environment, tmp_path)
        return
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _serves(command: str, environment: dict[str, str], folder: Path) -> None:
    """A server becomes ready, and ends when it is told to."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec env {command}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert any(line.startswith("ready ") for line in process.stdout), command
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("block", of("yaml"))
def test_configurations_are_taken(block: Block, tmp_path: Path) -> None:
    """C1, E7: a configuration that is shown is one that who it is for takes."""
    file = tmp_path / "shown.yaml"
    file.write_text(block.text, encoding="utf-8")
    if "scrape_configs" in yaml.safe_load(block.text):
        shutil.copy(ROOT / "deploy" / "prometheus" / "alerts.yaml", tmp_path)
        command = ["promtool", "check", "config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    else:
        done = run_cli("collect", "--config", str(file), "--validate")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("block", of("promql"))
def test_queries_are_taken(block: Block, tmp_path: Path) -> None:
    """E7: a query that is shown is one that Prometheus takes."""
    rule = {"record": "shown", "expr": block.text}
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": [rule]}]}), "utf-8")
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    """E6: every relative link names a file of the tree, and a heading of it where it has one."""
    document = ROOT / name
    for path, heading in re.findall(
        r"\]\(([^)#: ]*)(?:#([\w-]+))?\)", document.read_text(encoding="utf-8")
    ):
        target = document.parent / path if path else document
        assert target.exists(), path
        if heading:
            assert heading in _headings(target), f"{path}#{heading}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_tests_that_are_named_are_there(name: str) -> None:
    """E6: whoever is told which test shows something finds it."""
    named = re.findall(r"\btests/[\w/]+\.py\b", (ROOT / name).read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []


def _headings(document: Path) -> set[str]:
    """The anchors of a document's headings, as the renderers make them."""
    titles = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.timeout(120)  # it reads every module of the package
def test_the_site_builds(tmp_path: Path) -> None:
    """E6: the site builds without a warning: every page has its place, every link a target."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"),
            *("--site-dir", str(tmp_path / "site")),
        ],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    page = (tmp_path / "site/python-api/index.html").read_text("utf-8")
    for name in ("workflow.workflow", "plain.annotate"):
        assert f'id="flowmark_otel.annotate.{name}"' in page
    assert not re.search(r"\([A-E]\d{1,2}\b", page)
