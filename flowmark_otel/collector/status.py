"""``/status``: how nodes stand, apart from how pipelines answered, for people and programs (C6).

A pipeline that answered well may have a branch that failed: its node says so here. HTML where the
browser asks for it, else JSON; ``?format=json`` asks for JSON too.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timezone
from html import escape
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from flowmark_otel.collector.meter import Failure, Meter, NodeReading, PipelineReading

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{border-bottom:1px solid #ccc;padding:.3rem .6rem;text-align:left;vertical-align:top}"
    ".n{text-align:right;font-variant-numeric:tabular-nums}"
    ".bad{background:#fde8e8;color:#7a1212}"
)
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'",
    "x-content-type-options": "nosniff",
}
_PIPELINE_HEAD: Final = (
    *("pipeline", "receives from", "exports to", "trigger"),
    *("completed", "failed", "last failure"),
)
_NODE_HEAD: Final = (
    *("node", "kind", "state", "messages", "failed", "received", "folded", "forwarded"),
    *("refused", "dropped", "dead letters", "retries", "spool", "last failure"),
)


def route(meter: Meter, ready: Callable[[], Awaitable[str]]) -> Route:
    """The page of a collector. ``ready``: why it takes nothing now, empty where it does."""

    async def status(request: Request) -> Response:
        reason = await ready()
        nodes, pipelines = list(meter.nodes()), list(meter.pipelines())
        if wants_html(request.headers.get("accept", ""), request.query_params.get("format")):
            return HTMLResponse(page_of(nodes, pipelines, reason), headers=_HEADERS)
        return JSONResponse(document_of(nodes, pipelines, reason), headers=_HEADERS)

    return Route("/status", status)


def wants_html(accept: str, asked: str | None) -> bool:
    """Whether the answer is a page: browsers name HTML, programs do not."""
    return asked != "json" and "text/html" in accept.lower()


def document_of(
    nodes: Iterable[NodeReading], pipelines: Iterable[PipelineReading], reason: str
) -> dict[str, Any]:
    """The same for programs; times are RFC 3339, what is not there is null."""
    return {
        "ready": not reason,
        "reason": reason,
        "pipelines": [
            {**each._asdict(), "last_failure": _failure(each.last_failure)} for each in pipelines
        ],
        "nodes": [
            {
                **each._asdict(),
                "kind": each.kind.name.lower(),
                "state": each.state.value,
                "last_failure": _failure(each.last_failure),
                "spool": each.spool._asdict() if each.spool is not None else None,
            }
            for each in nodes
        ],
    }


def page_of(nodes: Iterable[NodeReading], pipelines: Iterable[PipelineReading], reason: str) -> str:
    """The page, of text alone: whatever a peer said is shown, never interpreted."""
    said = f"not ready: {reason}" if reason else "ready"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>flowmark-otel collect: {escape(said)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>flowmark-otel collect</h1><p{_mark(bad=bool(reason))}>{escape(said)}</p>"
        "<h2>Pipelines: how messages ended for their senders</h2>"
        f"{_table(_PIPELINE_HEAD, [_pipeline_row(each) for each in pipelines])}"
        "<h2>Nodes: how each of them stands</h2>"
        f"{_table(_NODE_HEAD, [_node_row(each) for each in nodes])}"
        "</body></html>"
    )


def _pipeline_row(each: PipelineReading) -> list[str]:
    return [
        _cell(each.id),
        _cell(", ".join(each.receivers)),
        _cell(", ".join(each.exporters)),
        _cell(each.trigger),
        _number(each.completed),
        _number(each.failed, bad=bool(each.failed)),
        _cell(_words(each.last_failure)),
    ]


def _node_row(each: NodeReading) -> list[str]:
    state = f"{each.state.value}: {each.why}" if each.why else each.state.value
    refused = ", ".join(f"{count} {reason}" for reason, count in sorted(each.refused.items()))
    spool = "" if each.spool is None else f"{each.spool.size} bytes"
    if each.spool is not None and each.spool.size:
        spool += f", oldest {each.spool.oldest_seconds:.0f} s"
    return [
        _cell(each.id),
        _cell(each.kind.name.lower()),
        _cell(state, bad=state != "ok"),
        _number(each.messages),
        _number(each.failed_messages, bad=bool(each.failed_messages)),
        _number(each.received),
        _number(each.folded),
        _number(each.forwarded),
        _cell(refused),
        _number(each.dropped),
        _number(each.letters),
        _number(each.retries),
        _cell(spool),
        _cell(_words(each.last_failure)),
    ]


def _table(head: Iterable[str], rows: Iterable[list[str]]) -> str:
    titles = "".join(f'<th scope="col">{escape(each)}</th>' for each in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str, *, bad: bool = False) -> str:
    return f"<td{_mark(bad=bad)}>{escape(text)}</td>"


def _number(value: int, *, bad: bool = False) -> str:
    return f'<td class="n{" bad" if bad else ""}">{value}</td>'


def _mark(*, bad: bool) -> str:
    return ' class="bad"' if bad else ""


def _words(failure: Failure | None) -> str:
    if failure is None:
        return ""
    return f"{_time(failure.time_unix_nano)} {failure.exception}: {failure.message}"


def _failure(failure: Failure | None) -> dict[str, object] | None:
    if failure is None:
        return None
    return {
        "time": _time(failure.time_unix_nano),
        "exception": failure.exception,
        "message": failure.message,
    }


def _time(unix_nano: int) -> str:
    moment = datetime.fromtimestamp(unix_nano // 1_000_000_000, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{unix_nano % 1_000_000_000:09d}Z"
