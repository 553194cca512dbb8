"""botocore's own loop against a server on loopback; the same tests run with its oldest release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import botocore.session
import pytest
from botocore.config import Config
from botocore.endpoint import Endpoint
from botocore.exceptions import ClientError, EndpointConnectionError
from opentelemetry import context as otel

from flowmark_otel.adapters import operation_name, recording
from flowmark_otel.adapters.botocore import BotocoreInstrumentor
from tests.support.adapting import Adapted, adapted
from tests.support.answers import Answering, Reply, answering, free_port

UNAVAILABLE: Final = Reply(status=503)
SLOW: Final = Reply(status=503, body=b"<Error><Code>SlowDown</Code><Message>m</Message></Error>")
THROTTLED: Final = Reply(
    status=400,
    content_type="application/x-amz-json-1.0",
    body=b'{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"m"}',
)
SESSION: Final = botocore.session.Session()  # it keeps the models that it has read
MODES: Final = ("legacy", "standard", "adaptive")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Adapted]:
    """The adapter on, and waits of botocore that take no time."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with adapted(BotocoreInstrumentor()) as found:
        yield found


def client(service: str, endpoint: str, **retries: Any) -> Any:
    """A client of a service at this address."""
    return SESSION.create_client(
        service,
        region_name="eu-north-1",
        endpoint_url=endpoint,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries=retries, s3={"addressing_style": "path"}, connect_timeout=5),
    )


def get(endpoint: str, **retries: Any) -> None:
    """Get an object, which botocore asks for without waiting for leave to send."""
    client("s3", endpoint, **retries).get_object(Bucket="b", Key="secret-key")


def limits(recorded: Adapted) -> list[object]:
    """What each span says of the sends allowed."""
    spans = sorted(recorded.spans, key=lambda span: span.start_time or 0)
    return [(span.attributes or {}).get("flowmark.attempt.limit") for span in spans]


def sent(server: Answering) -> list[tuple[str, str]]:
    """The invocation id and the number that botocore sent with each request."""
    return [
        (
            each.headers["amz-sdk-invocation-id"],
            each.headers["amz-sdk-request"].split("attempt=")[1].split(";")[0],
        )
        for each in server.received
    ]


@pytest.mark.parametrize("mode", MODES)
def test_sends_of_a_call(recorded: Adapted, mode: str) -> None:
    """E3: what botocore sends again is one group, its invocation id, numbered as it says."""
    before = otel.get_current()
    with answering(UNAVAILABLE, SLOW, Reply()) as server:
        get(server.endpoint, mode=mode, total_max_attempts=4)
    assert otel.get_current() == before
    assert recorded.groups() == [
        ("S3.GetObject", ["1 failed (503)", "2 failed (SlowDown)", "3 completed"])
    ]
    given = [dict(span.attributes or {}) for span in recorded.spans]
    assert sent(server) == [
        (each["flowmark.attempt.group_id"], str(each["flowmark.attempt.number"])) for each in given
    ]
    assert limits(recorded) == [4, 4, 4]
    assert len({each["flowmark.run.id"] for each in given}) == 1


@pytest.mark.parametrize("mode", MODES)
def test_connection_errors(recorded: Adapted, mode: str) -> None:
    """E3: the same where nobody listens; the error is the caller's as it was raised."""
    with pytest.raises(EndpointConnectionError):
        get(f"http://127.0.0.1:{free_port()}", mode=mode, total_max_attempts=3)
    code = "botocore.exceptions.EndpointConnectionError"
    assert recorded.groups() == [
        ("S3.GetObject", [f"{number} failed ({code})" for number in (1, 2, 3)])
    ]


def test_throttling(recorded: Adapted) -> None:
    """E3: an error that is told by its code has that code; calls are groups of their own."""
    with answering(THROTTLED, Reply(body=b"{}"), Reply(body=b"{}")) as server:
        found = client("dynamodb", server.endpoint, mode="standard")
        found.list_tables()
        found.list_tables()
    assert recorded.groups() == [
        ("DynamoDB.ListTables", ["1 failed (ThrottlingException)", "2 completed"]),
        ("DynamoDB.ListTables", ["1 completed"]),
    ]
    [said] = {each.headers["amz-sdk-request"].partition("max=")[2] for each in server.received[1:2]}
    assert limits(recorded) == [int(said)] * 3


def test_an_answer_that_is_sent_again_has_failed(recorded: Adapted) -> None:
    """E3: a good status with a wrong checksum is a failure, since botocore takes it for one."""
    wrong = Reply(body=b"{}", headers={"x-amz-crc32": "1"})
    with answering(wrong, Reply(body=b"{}")) as server:
        client("dynamodb", server.endpoint, mode="legacy").list_tables()
    assert recorded.groups() == [
        ("DynamoDB.ListTables", ["1 failed (result_rejected)", "2 completed"])
    ]


def test_legacy_says_its_own_limit_after_the_first_send(recorded: Adapted) -> None:
    """E3: without a configured limit the first send has none, since nothing says it by then."""
    with answering(UNAVAILABLE, Reply()) as server:
        get(server.endpoint, mode="legacy")
    assert limits(recorded) == [None, 5]


def test_what_is_not_sent_again(recorded: Adapted) -> None:
    """Issue 8: one send that failed is one attempt, and its error the caller's."""
    denied = Reply(status=403, body=b"<Error><Code>AccessDenied</Code></Error>")
    with answering(denied) as server, pytest.raises(ClientError) as raised:
        get(server.endpoint, mode="standard")
    assert raised.value.response["Error"]["Code"] == "AccessDenied"
    assert raised.value.response["ResponseMetadata"]["RetryAttempts"] == 0
    assert recorded.groups() == [("S3.GetObject", ["1 failed (AccessDenied)"])]
    assert all("secret-key" not in str(span.to_json()) for span in recorded.spans)


def test_the_caller_names_it(recorded: Adapted) -> None:
    """Issue 8: the operation name can be overridden."""
    with answering(Reply()) as server, operation_name("store-report"):
        get(server.endpoint)
    assert recorded.groups() == [("store-report", ["1 completed"])]


def test_suppressed(recorded: Adapted) -> None:
    """Issue 8: where instrumentation is suppressed nothing is recorded."""
    token = otel.attach(otel.set_value(otel._SUPPRESS_INSTRUMENTATION_KEY, value=True))
    try:
        with answering(UNAVAILABLE, Reply()) as server:
            get(server.endpoint)
    finally:
        otel.detach(token)
    assert len(server.received) == 2
    assert recorded.groups() == []


def test_a_fault_inside_reaches_nobody(recorded: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: whatever raises in recording, the call goes on as it would."""

    def broken() -> None:
        raise RuntimeError

    monkeypatch.setattr(recording, "client", broken)
    with answering(UNAVAILABLE, Reply()) as server:
        get(server.endpoint)
    assert len(server.received) == 2
    assert len(recorded.spans) == 0


def test_switched_off_it_is_gone() -> None:
    """Issue 8: botocore's methods are its own again."""
    own = Endpoint._get_response, Endpoint._needs_retry
    with adapted(BotocoreInstrumentor()):
        assert Endpoint._get_response is not own[0]
    assert own == (Endpoint._get_response, Endpoint._needs_retry)
