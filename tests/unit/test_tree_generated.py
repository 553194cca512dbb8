"""Generated code is what its generator writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool

from flowmark_otel.wire.pb import acceptance_pb2, receipt_pb2

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="the pinned compiler has no build for this Python"
)
@pytest.mark.timeout(180)
def test_generated_code_is_current() -> None:
    """What is checked in equals the output of the pinned compiler on proto/."""
    run = subprocess.run(
        [sys.executable, ROOT / "proto" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_messages_have_their_full_names() -> None:
    """Contract, section 3: messages are declared under the project's own full names and files."""
    pool = descriptor_pool.Default()
    for module in (acceptance_pb2, receipt_pb2):
        assert module.DESCRIPTOR.package == "flowmark.v1"
        assert pool.FindFileByName(module.DESCRIPTOR.name) is module.DESCRIPTOR
        assert module.DESCRIPTOR.name.startswith("flowmark/v1/")


@pytest.mark.parametrize("name", ["acceptance_pb2", "receipt_pb2"])
def test_generated_code_asks_for_no_new_runtime(name: str) -> None:
    """Generated code loads under every protobuf that opentelemetry-proto allows."""
    text = (ROOT / "flowmark_otel" / "wire" / "pb" / f"{name}.py").read_text()
    assert "ValidateProtobufRuntimeVersion" not in text
