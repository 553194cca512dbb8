"""Pages without evidence: first start, sign in, and answers that are only a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from flowmark_otel.dashboard.pages.frame import Frame, Link


@dataclass(frozen=True, slots=True)
class FirstSpan:
    """A span of the lines to copy; ``last``: no comma after it."""

    span_id: str
    number: int
    start: int
    end: int
    failed: bool
    last: bool


@dataclass(frozen=True, slots=True)
class EmptyPage:
    """How to send a first span to this very server.

    ``endpoint``: its address as the reader's browser knows it; ``grpc``: that of OTLP over gRPC.
    ``keys``: whether a key is needed. ``refused``: events that were sent and not accepted. Times
    are epoch nanoseconds.
    """

    template: ClassVar[str] = "empty.html"
    frame: Frame
    endpoint: str
    keys: bool
    trace_id: str
    spans: tuple[FirstSpan, ...]
    grpc: str | None = None
    refused: int = 0


@dataclass(frozen=True, slots=True)
class LoginPage:
    """The form for a read key.

    ``onward``: where to go after it, a path of this server; ``project``: the one it names.
    """

    template: ClassVar[str] = "login.html"
    frame: Frame
    onward: str
    error: str | None = None
    project: str | None = None


class ProjectWay(NamedTuple):
    """A project that the browser has a session for; ``href``: its own, whole address."""

    name: str
    href: str
    current: bool


@dataclass(frozen=True, slots=True)
class ProjectsPage:
    """The projects that this browser has signed in to."""

    template: ClassVar[str] = "projects.html"
    frame: Frame
    ways: tuple[ProjectWay, ...]


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A sentence in place of a page: not found, or not to be had now."""

    template: ClassVar[str] = "message.html"
    frame: Frame
    heading: str
    text: str
    way: Link | None = None


@dataclass(frozen=True, slots=True)
class HopPage:
    """One step inside this site.

    A browser that follows a link from another one keeps back the cookie, and sends it when this
    page goes on to the same address.
    """

    template: ClassVar[str] = "hop.html"
    frame: Frame
    target: str


def first_spans(now: int, span_ids: tuple[str, str]) -> tuple[FirstSpan, FirstSpan]:
    """Two attempts before ``now``, in epoch nanoseconds: the first fails, the second completes."""
    second = 1_000_000_000
    start = now - 3 * second
    return (
        FirstSpan(span_ids[0], 1, start, start + second, failed=True, last=False),
        FirstSpan(span_ids[1], 2, start + 2 * second, now, failed=False, last=True),
    )
