"""The answer to a request of which every event was judged (contract, sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from flowmark_otel import names
from flowmark_otel.model import Receipt, Rejection
from flowmark_otel.wire import outcome, receipt as receipts, status

_REFUSED: Final = frozenset((names.INVALID, names.LIMIT))


def judged(
    receipt: Receipt, rejections: Sequence[Rejection], encoding: str, signal: str, *, bare: int
) -> tuple[str, bytes]:
    """The row of ``wire.outcome`` and the body; ``rejections`` are all of them.

    ``bare``: the request's items without events. Only where there is none, and every event is
    rejected by whoever stores events, it is an error.
    """
    told = replace(receipt, rejections=tuple(rejections[: receipts.MAX_REJECTIONS]))
    row = _row({each.code for each in rejections}) if rejections else outcome.OK
    if row == outcome.OK or bare or receipt.rejected != receipt.received:
        return outcome.OK, receipts.encode(told, encoding, signal)
    first = rejections[0]
    message = f"all {receipt.rejected} events rejected; first: {first.code}: {first.message}"
    code = outcome.ANSWERS[row].grpc
    return row, status.encode_status(code, message, encoding, receipt=told)


def _row(codes: set[str]) -> str:
    """What an intermediary dropped or dead-lettered is no reason for an error."""
    if names.CONFLICT in codes:
        return outcome.CONFLICT
    return outcome.REFUSED if codes <= _REFUSED else outcome.OK
