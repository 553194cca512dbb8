"""Bounded decompression (fault rows 16 and 17)."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, strategies as st

from flowmark_otel.errors import TooLarge, Unparsable
from flowmark_otel.wire.inflate import MAX_MEMBERS, gunzip

PARTS = st.lists(st.binary(max_size=300), min_size=1, max_size=5)


@given(PARTS)
def test_what_was_gzipped_comes_back(parts: list[bytes]) -> None:
    """Fault row 16: one member or several, the body is what was compressed."""
    body = b"".join(gzip.compress(part) for part in parts)
    raw = b"".join(parts)
    assert gunzip(body, len(raw)) == raw


@given(PARTS, st.integers(min_value=0, max_value=299))
def test_the_limit_is_exact(parts: list[bytes], limit: int) -> None:
    """Fault row 16: more than the limit is TooLarge, the limit itself is not."""
    body = b"".join(gzip.compress(part) for part in parts)
    raw = b"".join(parts)
    if len(raw) > limit:
        with pytest.raises(TooLarge, match=str(limit)):
            gunzip(body, limit)
    else:
        assert gunzip(body, limit) == raw


@given(st.binary(max_size=300), st.data())
def test_a_body_cut_short_is_unparsable(raw: bytes, data: st.DataObject) -> None:
    """Fault row 16: no proper prefix of a member is taken for the whole."""
    body = gzip.compress(raw)
    end = data.draw(st.integers(min_value=0, max_value=len(body) - 1))
    with pytest.raises(Unparsable):
        gunzip(body[:end], 1000)


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=20))
def test_what_follows_the_last_member_is_unparsable(raw: bytes, rest: bytes) -> None:
    """Fault row 16: garbage behind a member is never dropped in silence."""
    with pytest.raises(Unparsable):
        gunzip(gzip.compress(raw) + rest, 1000)


@given(st.binary(max_size=300))
def test_noise_is_unparsable(noise: bytes) -> None:
    """Fault row 16: what is no gzip is Unparsable and nothing else."""
    with pytest.raises(Unparsable):
        gunzip(noise, 1000)


def test_a_large_body_crosses_its_steps() -> None:
    """Fault row 16: members that begin and end anywhere in a large body are all found."""
    member = gzip.compress(bytes(range(256)) * 100, 0)
    assert gunzip(member * 20, 20 * 25_600) == bytes(range(256)) * 2000


def test_the_number_of_members_is_bounded() -> None:
    """Fault row 17: a body of countless empty members is TooLarge, not a burden."""
    empty = gzip.compress(b"")
    assert gunzip(empty * MAX_MEMBERS, 0) == b""
    with pytest.raises(TooLarge, match="members"):
        gunzip(empty * 100_000, 1000)
