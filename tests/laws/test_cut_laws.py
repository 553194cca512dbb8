"""Laws of cutting: what is taken and what is left are together the request, span by span."""

from __future__ import annotations

import json
from typing import Final

from hypothesis import given, settings, strategies as st

from flowmark_otel.wire import cut
from flowmark_otel.wire.scan import scan
from flowmark_otel.wire.walk import fields
from tests.support.cuttable import REQUESTS, field, flat

_CHOICES: Final = st.sets(st.integers(0, 12))


@settings(max_examples=200, deadline=None)
@given(body=REQUESTS, chosen=_CHOICES)
def test_a_cut_request_is_the_request(body: bytes, chosen: set[int]) -> None:
    """Section 9: each span is on its side, with its resource, scope and schema URLs."""
    whole = flat(body)
    taken, rest = cut.split(body, chosen)
    assert flat(taken) == [one for at, one in enumerate(whole) if at in chosen]
    assert flat(rest) == [one for at, one in enumerate(whole) if at not in chosen]
    assert scan(body).items == cut.count(body) == cut.count(taken) + cut.count(rest)


@settings(max_examples=200, deadline=None)
@given(body=REQUESTS, chosen=_CHOICES)
def test_no_byte_of_a_part_changes(body: bytes, chosen: set[int]) -> None:
    """Section 9: items keep their bytes, and what is beside them in a group is on both sides."""
    taken, rest = cut.split(body, chosen)
    whole = _groups(body)
    for part in (_groups(taken), _groups(rest)):
        remaining = iter(whole)
        for beside, _ in part:  # in the order of the whole
            assert any(beside == other for other, _ in remaining)
    items = [item for _, held in whole for item in held]
    assert [one for at, one in enumerate(items) if at in chosen] == [
        item for _, held in _groups(taken) for item in held
    ]
    assert [one for at, one in enumerate(items) if at not in chosen] == [
        item for _, held in _groups(rest) for item in held
    ]


@settings(max_examples=100, deadline=None)
@given(body=REQUESTS)
def test_all_or_nothing_is_the_request_itself(body: bytes) -> None:
    """Section 9: a request of which nothing is cut off stays as it came."""
    assert cut.split(body, ()) == (b"", body)
    if all(held for _, held in _groups(body)) and _groups(body):
        assert flat(cut.split(body, range(99)).taken) == flat(body)


@settings(max_examples=100, deadline=None)
@given(body=REQUESTS)
def test_halves_are_halves(body: bytes) -> None:
    """Poison batches: halving ends with one span, none is lost and their order stays."""

    def leaves(part: bytes) -> list[bytes]:
        found = cut.halves(part)
        return [part] if found is None else [*leaves(found.taken), *leaves(found.rest)]

    alone = [flat(leaf) for leaf in leaves(body)]
    assert max(map(len, alone)) <= 1
    assert [one for leaf in alone for one in leaf] == flat(body)


@settings(max_examples=50, deadline=None)
@given(counts=st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=3), chosen=_CHOICES)
def test_json_is_cut_alike(counts: list[list[int]], chosen: set[int]) -> None:
    """Section 9: a JSON request is cut in the same places, and fields nobody knows are kept."""
    serial = iter(range(99))
    document = {
        "resourceSpans": [
            {
                "resource": {"group": at},
                "scopeSpans": [
                    {"scope": {}, "spans": [{"name": str(next(serial))} for _ in range(spans)]}
                    for spans in scopes
                ],
                "x": 2**70,
            }
            for at, scopes in enumerate(counts)
        ]
    }
    body = json.dumps(document).encode()
    taken, rest = (
        [
            (group["resource"], group["x"], span["name"])
            for group in json.loads(part).get("resourceSpans", ())
            for scope in group["scopeSpans"]
            for span in scope["spans"]
        ]
        for part in cut.split(body, chosen, encoding="json")
    )
    assert sorted(taken + rest, key=lambda one: int(one[2])) == [
        ({"group": at}, 2**70, str(number))
        for at, number in zip(
            (at for at, scopes in enumerate(counts) for spans in scopes for _ in range(spans)),
            range(99),
            strict=False,
        )
    ]
    assert {int(one[2]) for one in taken} == chosen & set(range(len(taken) + len(rest)))
    assert cut.count(body, encoding="json") == len(taken) + len(rest)


def _groups(body: bytes) -> list[tuple[tuple[bytes, ...], list[bytes]]]:
    """Of each scope group: the fields beside its items and those beside itself; its items."""
    found = []
    for _, _, content, stop in (one for one in fields(body, 0, len(body)) if one.number == 1):
        assert content is not None
        inner = list(fields(body, content, stop))
        beside = [body[one.start : one.stop] for one in inner if one.number != 2]
        for scope in (one for one in inner if one.number == 2):
            assert scope.content is not None
            parts = list(fields(body, scope.content, scope.stop))
            others = [body[one.start : one.stop] for one in parts if one.number != 2]
            items = [body[one.start : one.stop] for one in parts if one.number == 2]
            found.append(((*beside, *others), items))
    return found


def test_a_request_without_a_known_part_is_kept_with_the_rest() -> None:
    """Section 9: what a later OTLP adds to requests is not lost."""
    body = field(13, b"x")
    assert cut.split(body, {0}) == (b"", body)
