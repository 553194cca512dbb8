"""Laws of what the client keeps in a record: decoding undoes encoding, and nothing is misread."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from flowmark_otel import names
from flowmark_otel.deliver.spool import codec
from flowmark_otel.deliver.spool.framing import MAGIC
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Span

TEXT = st.text(st.characters(), max_size=12)  # lone surrogates too
VALUE = st.one_of(TEXT, st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False))
RESOURCE = st.dictionaries(
    TEXT,
    st.recursive(
        st.one_of(VALUE, st.none(), st.binary(max_size=8)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(tuple), st.dictionaries(TEXT, inner, max_size=2)
        ),
        max_leaves=6,
    ),
    max_size=4,
)
ENVELOPES = st.builds(
    Envelope,
    st.sampled_from((*names.PART_OF_EVENT, names.ATTEMPT_OBSERVED)),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=8, max_size=8),
    TEXT,
    st.integers(0, 2**64),
    st.dictionaries(TEXT, VALUE, max_size=5),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)


def encoded(envelope: Envelope, resource: dict[str, object]) -> bytes:
    """The payload."""
    return codec.encode_resource(resource) + codec.encode_envelope(envelope)


@given(ENVELOPES, RESOURCE)
def test_decoding_undoes_encoding(envelope: Envelope, resource: dict[str, object]) -> None:
    """E1: an envelope and its resource come back from the spool as they were, types included."""
    payload = encoded(envelope, resource)
    part = codec.resource_part(payload)
    assert repr(codec.decode_resource(part)) == repr(resource)
    assert repr(codec.decode_envelope(payload, len(part))) == repr(envelope)


@given(ENVELOPES, RESOURCE.filter(bool))
def test_no_payload_looks_like_a_record(envelope: Envelope, resource: dict[str, object]) -> None:
    """Fault row 27: what an application records never holds the mark that a record begins with."""
    assert MAGIC not in encoded(envelope, resource)


@given(ENVELOPES, st.integers(0, 255).filter(lambda version: version != codec.VERSION))
def test_another_version_is_not_misread(envelope: Envelope, version: int) -> None:
    """Fault row 27: a payload of another version is unreadable, never read as something else."""
    payload = bytes([version]) + encoded(envelope, {})[1:]
    with pytest.raises(codec.Unreadable, match="version"):
        codec.resource_part(payload)


@given(st.binary(max_size=80))
def test_no_bytes_raise_anything_else(content: bytes) -> None:
    """Fault row 27: bytes that are no payload are unreadable, whatever they are."""
    try:
        part = codec.resource_part(bytes([codec.VERSION]) + content)
        codec.decode_resource(part)
        codec.decode_envelope(bytes([codec.VERSION]) + content, len(part))
    except codec.Unreadable:
        pass


HEAD = f'["{names.RUN_STARTED}","{"00" * 16}","{"00" * 8}","p"'


@pytest.mark.parametrize(
    "text",
    [
        HEAD + ",1,{},0,false,1]",
        HEAD + ",1,[],0,false]",
        HEAD + ',"1",{},0,false]',
        HEAD.replace("00", "zz") + ",1,{},0,false]",
        HEAD.replace("00", "00" * 2) + ",1,{},0,false]",
        HEAD.replace(names.RUN_STARTED, "flowmark.run.paused") + ",1,{},0,false]",
        "{}",
        "[" * 100_000,
    ],
)
def test_an_envelope_of_another_shape_is_unreadable(text: str) -> None:
    """Fault row 27: JSON that is no envelope this version can send is unreadable."""
    payload = codec.encode_resource({}) + text.encode()
    with pytest.raises(codec.Unreadable):
        codec.decode_envelope(payload, len(codec.resource_part(payload)))


def test_a_field_with_a_default_may_be_missing() -> None:
    """Fault row 27: what an earlier version did not write has its default."""
    payload = codec.encode_resource({}) + (HEAD + ",1,{},0]").encode()
    found = codec.decode_envelope(payload, len(codec.resource_part(payload)))
    assert (found.event, found.characters_replaced) == (names.RUN_STARTED, False)


def test_a_folded_span_comes_back() -> None:
    """E1: what fold makes of a span is the same from the spool, so its digest is."""
    attributes = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 2}
    span = Span(b"\1" * 16, b"\2" * 8, "push", 5, 9, failed=True, attributes=attributes)
    folded = [each for each in fold_span(span) if isinstance(each, Envelope)]
    assert len(folded) == 2
    for envelope in folded:
        payload = encoded(envelope, {"service.name": "svc"})
        assert codec.decode_envelope(payload, len(codec.resource_part(payload))) == envelope
