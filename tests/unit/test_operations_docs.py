"""What the backend says of itself is in its documentation."""

from __future__ import annotations

import re
from pathlib import Path

from flowmark_otel import names
from flowmark_otel.config import ServeOptions, declared
from flowmark_otel.server.naming import prometheus_name

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")
SAID = re.compile(r"\bsay\(\s*_?log\w*,\s*logging\.[A-Z]+,\s*\"([a-z_]+)\"")


def test_every_metric_is_documented_with_its_labels() -> None:
    """Contract, section 10: the table of the documentation is the table of the code."""
    for metric in names.SERVER_METRICS:
        assert prometheus_name(metric) in OPERATIONS
        for label in metric.attributes:
            assert label.replace(".", "_") in OPERATIONS


def test_every_event_of_the_log_is_documented() -> None:
    """D5: whoever reads a line finds what it means."""
    sources = (ROOT / "flowmark_otel").rglob("*.py")
    said = {event for path in sources for event in SAID.findall(path.read_text("utf-8"))}
    assert len(said) >= 9
    assert {event for event in said if f"`{event}`" not in OPERATIONS} == set()


def test_the_options_of_a_service_are_documented() -> None:
    """D5: what an operator can set is told where operators read."""
    assert {"workers", "metrics", "log_level", "tls_cert", "tls_key"} <= set(declared(ServeOptions))
    for flag in ("--workers", "--metrics", "--log-level", "--tls-cert", "--tls-key"):
        assert flag in OPERATIONS
