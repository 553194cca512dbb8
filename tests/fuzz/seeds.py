"""Writes the first inputs of every target: ``python -m tests.fuzz.seeds``; small, one of a kind."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from opentelemetry.proto.trace.v1 import trace_pb2

from flowmark_otel import names
from flowmark_otel.deliver.spool import codec, framing
from flowmark_otel.model import Receipt, Rejection
from flowmark_otel.wire import encode, receipt
from flowmark_otel.wire.status import encode_status
from tests.fuzz.__main__ import CORPUS
from tests.fuzz.targets import SENT

SAMPLES = Path(__file__).parents[1] / "samples"
LARGEST = 8192


def main() -> int:
    """Write them."""
    logs = [encode.encode_logs(SENT, {"service.name": "s"}, encoding=each) for each in FORMS]
    samples = [
        each.read_bytes()
        for each in sorted(SAMPLES.glob("real_*"))
        if each.stat().st_size <= LARGEST
    ]
    taken = Receipt(stored=2, duplicate=1, received=3)
    part = Receipt(
        stored=1,
        received=3,
        rejected=2,
        rejections=(
            Rejection(SENT[0].event_id, "conflict", "other"),
            Rejection("", "limit", "", 1),
        ),
        rejected_items=2,
    )
    receipts = [receipt.encode(each, form, "logs") for each in (taken, part) for form in FORMS]
    errors = [encode_status(14, "later", form, None, 2.5) for form in FORMS]
    errors += [encode_status(6, "known", form, part) for form in FORMS]
    payload = codec.encode_resource({"service.name": "s"}) + codec.encode_envelope(SENT[0])
    for name, seeds in {
        "scanned": [each for each in samples if each[:1] == b"\n"] + logs[:1],
        "traces": samples,
        "collected": [*[each for each in samples if each[:1] == b"\n"][:1], _laid_out()],
        "logs": logs,
        "answers": [bytes([number]) + b"\0" + each for number in (0, 1, 4) for each in receipts],
        "statuses": errors,
        "gzipped": [gzip.compress(each, mtime=0) for each in logs],
        "spooled": [payload, framing.frame(payload, 3), framing.MAGIC],
    }.items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (folder / f"seed-{number:02}").write_bytes(seed)
    return 0


FORMS = ("protobuf", "json")


def _laid_out() -> bytes:
    """Attempts that one piece of code made: of one layout, alike but for ids and numbers."""
    request = trace_pb2.TracesData()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in (1, 2, 3, 4):
        span = spans.add(
            trace_id=bytes([number]) * 16,
            span_id=bytes([number]) * 8,
            name="charge",
            start_time_unix_nano=1,
            end_time_unix_nano=2,
        )
        span.attributes.add(key="peer").value.string_value = "x"
        span.attributes.add(key=names.OPERATION_NAME).value.string_value = "charge"
        span.attributes.add(key=names.ATTEMPT_GROUP_ID).value.string_value = "g"
        span.attributes.add(key=names.ATTEMPT_NUMBER).value.int_value = number
    return request.SerializeToString()


if __name__ == "__main__":
    sys.exit(main())
