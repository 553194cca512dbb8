"""The limits that the documentation names are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowmark_otel.listen import admission, connections, grpc, intake, reads
from flowmark_otel.wire import budget

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
TEXT = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
MIB = 1 << 20
BOUNDS = dict(grpc.BOUNDS)


@pytest.mark.parametrize(
    "said",
    [
        f"`--max-request-bytes`, {intake.MAX_REQUEST_BYTES // MIB} MiB",
        f"{budget.MAX_ITEMS:,} | spans or log records",
        f"{budget.MAX_ANNOTATED:,} | annotated ones",
        f"{budget.MAX_FIELDS:,} | attributes, events and links of annotated items",
        f"any item over {budget.PLAIN // 1024} KiB",
        f"{budget.MAX_FRAME_FIELDS:,} | other fields",
        f"{budget.MAX_JSON_VALUES:,} | opening braces",
        f"{budget.MAX_ITEM_FIELDS:,} | attributes, events and links of one item",
        f"{admission.MAX_BYTES // MIB} MiB of bodies",
        f"requests up to {admission.SMALL // MIB} MiB",
        f"{admission.MAX_LAG:.0f} seconds to wait",
        f"1 to {admission.MAX_RETRY:.0f} seconds",
        f"{reads.PROMPT_READS} gRPC messages received at a time",
        f"{reads.SLOW_READS} slower ones; {reads.MAX_WAITING_READS} that wait",
        f"{connections.HEAD_SECONDS:.0f} seconds for the head of an HTTP request",
        f"(and {connections.MAX_HEAD_BYTES // 1024} KiB)",
        f"{intake.READ_SECONDS:.0f} for the body",
        f"{connections.MESSAGE_SECONDS:.0f} for any other, {connections.WRITE_SECONDS:.0f} for a",
        f"{BOUNDS['grpc.server_handshake_timeout_ms'] // 1000} seconds for its handshake",
        f"after {BOUNDS['grpc.keepalive_time_ms'] // 1000} without a word",
        f"closed {BOUNDS['grpc.http2.ping_timeout_ms'] // 1000} seconds later",
        f"after {BOUNDS['grpc.max_connection_idle_ms'] // 60_000} minutes",
        f"{BOUNDS['grpc.max_concurrent_streams']} calls at once",
    ],
)
def test_the_limits_are_documented(said: str) -> None:
    """D5: what docs/operations.md says of a limit is what the code holds requests against."""
    assert said in TEXT
