"""The accepting backend behind a listener, on a real store (contract, sections 3 and 4)."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import orjson
import pytest

from flowmark_otel import names
from flowmark_otel.backend import accept as accepting
from flowmark_otel.backend.accept import Acceptor
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import open_store, schema
from flowmark_otel.errors import Forbidden, Unauthenticated, Unavailable, Unparsable
from flowmark_otel.fold import digest, fold_span
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.model import Envelope, Principal, Receipt, Refused, Span
from flowmark_otel.wire import outcome, receipt, status
from flowmark_otel.wire.encode import encode_logs
from tests.support.envelopes import NOW, WAIT, completed, failed, rows, span as ids, started
from tests.support.otlp import traces_json, traces_protobuf


class Accepting:
    """An acceptor on an empty store, asked as the listeners ask it, in one encoding."""

    def __init__(self, url: str, encoding: Encoding = Encoding.PROTOBUF) -> None:
        self.store = open_store(url)
        self.keys = Keys(self.store)
        self.acceptor = Acceptor(self.store, self.keys)
        self.encoding = encoding
        self.principal = Principal(self.keys.ensure_project("shop"), "shop", names.KEY_INGEST)

    async def traces(self, *spans: Span) -> Reply:
        """Send spans."""
        write: Callable[[tuple[Span, ...]], bytes] = (
            traces_json if self.encoding is Encoding.JSON else traces_protobuf
        )
        return await self.send(Signal.TRACES, write(spans))

    async def logs(self, *envelopes: Envelope) -> Reply:
        """Send envelopes, in protobuf."""
        return await self.send(Signal.LOGS, encode_logs(envelopes, {"service.name": "crm"}))

    async def send(self, signal: Signal, body: bytes) -> Reply:
        """Send a body."""
        return await self.acceptor.accept(signal, self.encoding, body, self.principal, "ua/1")

    def receipt(self, reply: Reply) -> Receipt:
        """The receipt in a reply, wherever it is."""
        form = self.encoding.wire
        if reply.outcome == outcome.OK:
            return receipt.decode(reply.body, form)
        found = status.decode_status(reply.body, form)
        assert found.code == outcome.ANSWERS[reply.outcome].grpc
        assert found.receipt is not None
        return found.receipt

    def close(self) -> None:
        """The acceptor first, then the store."""
        self.acceptor.close()
        self.store.close()


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Accepting]:
    """An acceptor on an empty store."""
    made = Accepting(f"sqlite:///{tmp_path}/store.db")
    yield made
    made.close()


def attempt(number: int, **more: object) -> Span:
    """A span that is an attempt; ``more`` attributes under ``flowmark.``, dots as ``__``."""
    attributes: dict[str, object] = {
        names.ATTEMPT_GROUP_ID: "g",
        names.ATTEMPT_NUMBER: number,
    }
    attributes |= {f"flowmark.{key.replace('__', '.')}": value for key, value in more.items()}
    return Span(*ids(number), "push", NOW, NOW + 5, failed=False, attributes=attributes)


PLAIN = Span(*ids(900), "GET /", NOW, NOW + 5, failed=False, attributes={"http.route": "/"})
BAD = attempt(1, attempt__limit="three")


@pytest.mark.parametrize("encoding", list(Encoding))
async def test_a_good_request_is_answered_with_a_receipt(
    tmp_path: Path, encoding: Encoding
) -> None:
    """A22, A23: what was stored is acknowledged with `attempts-v1`, and again as duplicate."""
    backend = Accepting(f"sqlite:///{tmp_path}/store.db", encoding)
    first = backend.receipt(await backend.traces(attempt(1), PLAIN, attempt(2)))
    again = backend.receipt(await backend.traces(attempt(1), attempt(2)))
    assert first == Receipt(backend_id=backend.store.backend_id, stored=4, received=4)
    assert again == Receipt(backend_id=backend.store.backend_id, duplicate=4, received=4)
    assert len(rows(backend.store, schema.events)) == 4
    backend.close()


async def test_spans_and_their_envelopes_are_the_same_events(backend: Accepting) -> None:
    """A8, D1: an SDK's envelopes and the span behind a stock exporter never count twice."""
    folded = [each for each in fold_span(attempt(1)) if isinstance(each, Envelope)]
    assert backend.receipt(await backend.logs(*folded)).stored == 2
    assert backend.receipt(await backend.traces(attempt(1))).duplicate == 2


@pytest.mark.parametrize(
    ("spans", "expected", "rejected", "items"),
    [
        ([BAD], outcome.REFUSED, 2, 1),
        ([BAD, BAD], outcome.REFUSED, 4, 2),
        ([BAD, PLAIN], outcome.OK, 2, 1),
        ([BAD, attempt(2)], outcome.OK, 2, 1),
        ([attempt(7, attempt__limit=9)], outcome.CONFLICT, 2, 1),
        ([attempt(7, attempt__limit=9), BAD], outcome.CONFLICT, 4, 2),
        ([attempt(7, attempt__limit=9), PLAIN], outcome.OK, 2, 1),
        ([attempt(7, attempt__limit=9), attempt(7)], outcome.OK, 2, 1),
    ],
)
async def test_the_answer_follows_the_table(
    backend: Accepting, spans: list[Span], expected: str, rejected: int, items: int
) -> None:
    """Contract, section 4: 409 and 400 only where nothing of a request could be taken."""
    await backend.traces(attempt(7))
    reply = await backend.traces(*spans)
    found = backend.receipt(reply)
    assert (reply.outcome, found.rejected) == (expected, rejected)
    assert found.received == found.stored + found.duplicate + found.rejected
    if expected == outcome.OK:
        assert found.rejected_items == items


async def test_rejections_are_named_and_the_list_is_cut(backend: Accepting) -> None:
    """A23: at most 16 are named, messages of at most 128 bytes, the receipt below 3 KiB."""
    spans = [attempt(number, attempt__limit="ü" * 300) for number in range(1, 40)]
    reply = await backend.traces(*spans)
    found = backend.receipt(reply)
    assert (found.rejected, found.received) == (78, 78)
    assert 1 < len(found.rejections) <= 16
    assert len(reply.body) <= 3072
    for each in found.rejections:
        assert each.code == names.INVALID
        assert each.message.startswith("flowmark.attempt.limit is the string")
        assert len(each.message.encode()) <= 128
    assert found.rejections[0].event_id == f"op-{ids(1)[0].hex()}-{ids(1)[1].hex()}-start"


async def test_an_event_without_an_id_is_named_by_its_position(backend: Accepting) -> None:
    """Contract, section 1: where ids are bad the span counts as one event, by its position."""
    bad = attempt(1)._replace(span_id=bytes(8))
    found = backend.receipt(await backend.traces(PLAIN, attempt(2), bad))
    assert (found.stored, found.rejected) == (2, 1)
    assert (found.rejections[0].event_id, found.rejections[0].item) == ("", 2)


async def test_requests_without_marked_items_cost_the_store_nothing(tmp_path: Path) -> None:
    """D4: what is not annotated is answered without the store, even if it is gone."""
    backend = Accepting(f"sqlite:///{tmp_path}/store.db")
    backend.store.close()
    found = backend.receipt(await backend.traces(PLAIN, PLAIN))
    assert found == Receipt(backend_id=backend.store.backend_id)
    with pytest.raises(Unavailable):
        await backend.traces(attempt(1))
    backend.close()


async def test_identity_alone_makes_no_event(backend: Accepting) -> None:
    """Contract, section 1: identity keys alone make no record; the span counts as unannotated."""
    marked = PLAIN._replace(attributes={names.RUN_ID: "run-1"})
    assert backend.receipt(await backend.traces(marked)).received == 0
    assert (await backend.traces(marked, BAD)).outcome == outcome.OK


async def test_who_sent_is_kept_with_each_event(backend: Accepting) -> None:
    """Contract, section 5: with each event its sender is stored, bad characters replaced."""
    await backend.traces(attempt(1)._replace(service_name="shop\0"), attempt(2))
    senders = {
        each["id"]: (each["user_agent"], each["service_name"])
        for each in rows(backend.store, schema.senders)
    }
    used = [senders[each["sender"]] for each in rows(backend.store, schema.events)]
    assert used == [("ua/1", "shop\ufffd")] * 2 + [("ua/1", "")] * 2


async def test_the_payload_of_a_refused_event_is_kept_redacted(backend: Accepting) -> None:
    """Contract, section 4: what was refused is kept as evidence, and redacted like the rest."""
    bad = attempt(
        1,
        attempt__limit=2.5,
        attempt__idempotency_key="card-4242",
        run__result__api_token="hunter2hunter2",
        error__code=b"bytes",
    )._replace(service_name="shop")
    await backend.traces(bad)
    kept = [orjson.loads(each["attributes"]) for each in rows(backend.store, schema.rejections)]
    assert len(kept) == 3  # the run has started: no start field of it is broken
    for payload in kept:
        assert len(payload) == 6
        assert payload[names.ATTEMPT_LIMIT] == 2.5
        assert payload[names.ATTEMPT_IDEMPOTENCY_KEY].startswith("sha256:")
        assert payload["flowmark.run.result.api_token"] == names.REDACTED
        assert payload[names.ERROR_CODE] == "bytes"


async def test_status_tells_what_became_of_events(backend: Accepting) -> None:
    """A24: stored before rejected, own digest first; malformed and foreign ids are unknown."""
    first = completed(1, ("g", 1))
    await backend.logs(started(1, ("g", 1)), first)
    await backend.logs(failed(1, ("g", 1)))
    await backend.traces(attempt(3, attempt__limit=0))
    refused = [each.event_id for each in fold_span(BAD) if isinstance(each, Refused)]
    await backend.traces(BAD)
    wanted = [first.event_id, "no id", refused[0], "op-\udc80", first.event_id.upper()]
    stored, malformed, rejected, surrogate, upper = await backend.acceptor.status(
        wanted, backend.principal
    )
    assert stored == (first.event_id, names.STORED, digest(first).hex(), None)
    assert rejected[:2] == (refused[0], names.STORED)  # the start was stored before
    for each, text in ((malformed, wanted[1]), (surrogate, wanted[3]), (upper, wanted[4])):
        assert each == (text, names.STATE_UNKNOWN, None, None)
    only_rejected = f"op-{ids(3)[0].hex()}-{ids(3)[1].hex()}-end"
    [found] = await backend.acceptor.status([only_rejected], backend.principal)
    assert (found[1], found[3]) == (names.STATE_REJECTED, names.INVALID)
    foreign = Principal(backend.keys.ensure_project("other"), "other", names.KEY_INGEST)
    [found] = await backend.acceptor.status([first.event_id], foreign)
    assert found == (first.event_id, names.STATE_UNKNOWN, None, None)


async def test_what_cannot_be_parsed_is_refused_as_a_whole(backend: Accepting) -> None:
    """Fault row 18: no protobuf message is Unparsable, and nothing of it is stored."""
    with pytest.raises(Unparsable):
        await backend.send(Signal.TRACES, b"\x0a\xff")


async def test_a_slow_store_is_given_up_in_time(
    backend: Accepting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 7: a request waits for a bounded time, then it is 503 and not written."""
    monkeypatch.setattr(accepting, "DEADLINE_SECONDS", 0.05)
    leave = threading.Event()
    busy = backend.store.write(lambda _: leave.wait(WAIT))
    with pytest.raises(Unavailable, match="in time"):
        await backend.traces(attempt(1))
    leave.set()
    assert busy.result(WAIT)
    backend.store.write(lambda _: None).result(WAIT)  # all that waited before is done
    assert rows(backend.store, schema.events) == []


async def test_only_ingest_keys_may_send(backend: Accepting) -> None:
    """Contract, section 4: a key of the wrong kind is forbidden, none or a bad one is 401."""
    _, ingest = backend.keys.create("shop", names.KEY_INGEST)
    principal = backend.acceptor.authenticate(f"Bearer {ingest}")
    assert principal.project_id == backend.principal.project_id
    for kind in (names.KEY_READ, names.KEY_ADMIN):
        _, token = backend.keys.create("shop", kind)
        with pytest.raises(Forbidden, match=kind):
            backend.acceptor.authenticate(f"Bearer {token}")
    for header in (None, "Bearer fmk_a_b", f"Basic {ingest}"):
        with pytest.raises(Unauthenticated):
            backend.acceptor.authenticate(header)


async def test_without_keys_everything_is_of_project_default(tmp_path: Path) -> None:
    """Contract, section 4: `--insecure-no-auth` serves project `default`."""
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    keys = Keys(store)
    acceptor = Acceptor(store, keys, insecure=True)
    found = acceptor.authenticate(None)
    assert (found.project, found.project_id) == ("default", keys.ensure_project("default"))
    acceptor.close()
    store.close()


async def test_a_capability_that_is_off_is_not_acknowledged(tmp_path: Path) -> None:
    """A21, A22: with the capability switched off receipts do not carry it."""
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    acceptor = Acceptor(store, Keys(store), insecure=True, capabilities=())
    body = traces_protobuf([attempt(1)])
    principal = acceptor.authenticate(None)
    reply = await acceptor.accept(Signal.TRACES, Encoding.PROTOBUF, body, principal, None)
    assert receipt.decode(reply.body, "protobuf").capabilities == ()
    assert acceptor.capabilities() == ((), store.backend_id)
    acceptor.close()
    store.close()
