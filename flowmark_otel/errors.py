"""The errors of the project; each says what its sender should do.

``permanent``: the same request can never succeed. Otherwise ``retry_after`` is the number of
seconds after which another try may help. Foreign exceptions are translated into these once, at
the edge, and chained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class FlowmarkError(Exception):
    """Base of all errors raised by this package."""

    permanent: bool = True
    retry_after: float | None = None


class ConfigurationError(FlowmarkError):
    """Settings that cannot be used; ``faults`` names every one of them."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class RequestError(FlowmarkError):
    """A request that is refused as a whole; its class says how it is answered."""


class Unparsable(RequestError):
    """The body is no protobuf message or no JSON object of the right top-level shape."""


class TooLarge(RequestError):
    """The body passes the limit, compressed or decompressed."""


class UnsupportedMedia(RequestError):
    """A content type or content encoding that is not OTLP's."""


class NotServed(RequestError):
    """No pipeline of this collector takes such requests."""


class NotTaken(RequestError):
    """A node of the collector failed for good over this request."""


class Unauthenticated(RequestError):
    """No key, an unknown, expired or revoked one."""


class Forbidden(RequestError):
    """A key of the wrong kind."""


class Unavailable(RequestError):
    """The store cannot take the request now; it should be sent again."""

    permanent = False

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidUse(FlowmarkError, ValueError):
    """A diagnostic about the caller's own use, raised instead of reported (``FLOWMARK_STRICT``)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class AttemptTimeoutError(FlowmarkError, TimeoutError):
    """An attempt reached its cap and was stopped (B5); another one may get through."""

    permanent = False


class NotAcknowledged(Protocol):
    """What is said of one event that was not acknowledged (``model.Unacknowledged``)."""

    @property
    def event_id(self) -> str:
        """The id of the event."""
        ...

    @property
    def state(self) -> str:
        """One of ``names.DELIVERY_STATES``."""
        ...

    @property
    def reason(self) -> str:
        """Why: a reason of section 3 of the contract."""
        ...

    @property
    def message(self) -> str:
        """The same in words, empty where there is no more to say."""
        ...


class DeliveryError(FlowmarkError):
    """Recorded events that were not acknowledged (A22); nothing pretends they can be restored.

    ``failures`` names at most 100 of them; ``counts`` has the full numbers by state and reason.
    """

    permanent = False

    def __init__(
        self,
        message: str,
        failures: Sequence[NotAcknowledged],
        counts: Mapping[tuple[str, str], int],
    ) -> None:
        super().__init__(message)
        self.failures = tuple(failures)
        self.counts = dict(counts)


class SchemaMismatch(FlowmarkError):
    """The store's schema is older or newer than this version; the message has the mend."""
