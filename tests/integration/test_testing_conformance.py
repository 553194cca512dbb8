"""The conformance test for transports: ours pass it over real sockets, broken ones do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest
import requests

from flowmark_otel import names
from flowmark_otel.config.client import GRPC, JSON, PROTOBUF, ClientOptions
from flowmark_otel.deliver import Answer, EventStatus, NoAnswer, Transport
from flowmark_otel.deliver.transports import open_transport
from flowmark_otel.testing import assert_transport_conforms
from flowmark_otel.testing.conformance import Peer, serve_grpc, serve_http


@pytest.mark.parametrize(
    ("protocol", "compression", "serve"),
    [
        (PROTOBUF, "none", serve_http),
        (PROTOBUF, "gzip", serve_http),
        (JSON, "none", serve_http),
        (GRPC, "none", serve_grpc),
        (GRPC, "gzip", serve_grpc),
    ],
)
def test_our_transports_conform(
    protocol: str, compression: str, serve: Callable[[Peer], AbstractContextManager[str]]
) -> None:
    """A25, D1: the built-in transports keep the protocol that custom ones have to keep."""

    def make(address: str) -> Transport:
        return open_transport(
            ClientOptions(endpoint=address, protocol=protocol, compression=compression)
        )

    assert_transport_conforms(make, serve=serve)


class Plain:
    """A custom transport as somebody may write it, on ``requests``; keeps the protocol."""

    encoding = "protobuf"

    def __init__(self, address: str) -> None:
        self.address = address
        self.session = requests.Session()

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """One POST."""
        try:
            found = self.post(body, content_type, timeout)
        except requests.Timeout as error:
            raise NoAnswer(str(error), names.REASON_TIMEOUT) from error
        except requests.RequestException as error:
            raise NoAnswer(str(error)) from error
        headers = {name.lower(): value for name, value in found.headers.items()}
        return Answer(found.status_code, found.content, headers)

    def post(self, body: bytes, content_type: str, timeout: float) -> requests.Response:
        """As ``requests`` does it."""
        return self.session.post(
            f"{self.address}/v1/logs",
            data=body,
            headers={"content-type": content_type},
            timeout=timeout,
            allow_redirects=False,
        )

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:
        """It has no such question."""
        raise NoAnswer(f"{len(event_ids)} events in {timeout} s")  # noqa: EM102, TRY003 - a double

    def after_fork(self) -> None:
        """A new session."""
        self.session = requests.Session()

    def close(self) -> None:
        """Close the session."""
        self.session.close()


class Redirected(Plain):
    """Follows redirects."""

    def post(self, body: bytes, content_type: str, timeout: float) -> requests.Response:
        """As ``requests`` does by default."""
        url = f"{self.address}/v1/logs"
        headers = {"content-type": content_type}
        return self.session.post(url, data=body, headers=headers, timeout=timeout)


class Patient(Plain):
    """Takes as long as it takes."""

    def post(self, body: bytes, content_type: str, timeout: float) -> requests.Response:
        """Without a timeout that would ever be reached."""
        return super().post(body, content_type, timeout + 10)


class Stubborn(Plain):
    """Tries again by itself."""

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """A second time where the first was no success."""
        answer = super().send(body, content_type, timeout)
        if answer.status != requests.codes.ok:
            answer = super().send(body, content_type, timeout)
        return answer


class Hopeful(Plain):
    """Takes no answer for a success."""

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """Whatever happens, it went well."""
        try:
            return super().send(body, content_type, timeout)
        except NoAnswer:
            return Answer(200, b"", {"content-type": content_type})


class Forgetful(Plain):
    """Loses headers, and the body of what is no success."""

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """The bare status."""
        answer = super().send(body, content_type, timeout)
        return answer if answer.status == requests.codes.ok else Answer(answer.status)


class Raw(Plain):
    """Lets exceptions of its library out."""

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """Untranslated."""
        found = self.post(body, content_type, timeout)
        headers = {name.lower(): value for name, value in found.headers.items()}
        return Answer(found.status_code, found.content, headers)


def test_a_custom_transport_can_conform() -> None:
    """A25: a transport of one's own that keeps the protocol passes."""
    assert_transport_conforms(Plain)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Redirected, "follows no redirect"),
        (Patient, "ends by its timeout"),
        (Stubborn, "tries once"),
        (Hopeful, "Without a whole answer"),
        (Forgetful, "An error is an answer"),
        (Raw, "It raised"),
    ],
)
def test_a_broken_transport_does_not_conform(broken: type[Plain], said: str) -> None:
    """A25: each way to lose or to make up an answer is found, and named."""
    with pytest.raises(AssertionError, match=said):
        assert_transport_conforms(broken)
