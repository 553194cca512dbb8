"""What other instrumentations wrote: the captures of ``tests/samples`` and their attempts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flowmark_otel import names
from flowmark_otel.fold import fold_signals, fold_span
from flowmark_otel.model import Envelope, Span
from flowmark_otel.signals import Signals
from flowmark_otel.wire.decode import decode_traces

FOLDER: Final = Path(__file__).parent.parent / "samples"
SAMPLES: Final = sorted((*FOLDER.glob("*.json"), *FOLDER.glob("*.pb")))
NAMES: Final = sorted({path.stem.removeprefix("real_") for path in SAMPLES})


def sample(name: str, suffix: str = ".json") -> bytes:
    """The bytes of a capture."""
    return (FOLDER / f"real_{name}{suffix}").read_bytes()


def spans_in(name: str, signals: Signals, suffix: str = ".json") -> list[Span]:
    """The spans of a capture that are looked at for ``signals``."""
    encoding = "json" if suffix == ".json" else "protobuf"
    request = decode_traces(sample(name, suffix), encoding, signals)
    return [item.record for item in request.marked if isinstance(item.record, Span)]


def envelopes_in(name: str, signals: Signals, suffix: str = ".json") -> list[Envelope]:
    """The events of a capture that signals make; none of them may be refused."""
    found = []
    for span in spans_in(name, signals, suffix):
        assert fold_span(span) == []
        for event in fold_signals(span, signals):
            assert isinstance(event, Envelope)
            found.append(event)
    return found


def attempts_in(envelopes: list[Envelope]) -> list[tuple[str, str, int, str]]:
    """Operation, group, number and status of the attempts, in that order; open without an end."""
    statuses: dict[tuple[str, str, int], str] = {}
    for event in envelopes:
        carried = event.attributes
        assert carried[names.ATTEMPT_KIND] == names.KIND_OBSERVED
        key = (
            str(carried[names.OPERATION_NAME]),
            str(carried[names.ATTEMPT_GROUP_ID]),
            int(carried[names.ATTEMPT_NUMBER]),
        )
        status = event.event.rpartition(".")[2]
        if status != "started" or key not in statuses:
            statuses[key] = "open" if status == "started" else status
    return sorted((*key, status) for key, status in statuses.items())
