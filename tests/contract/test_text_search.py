"""Text search: the same words found in both stores, summarised or not, and no syntax of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from flowmark_otel.backend.read import RunFilters
from flowmark_otel.backend.summary import words
from flowmark_otel.backend.summary.worker import fold_all
from tests.conftest import STORES
from tests.support.history import Ingested, attempt, ingested, operation_of, span

NAMES = (
    *("\u00dcberweisung", "naive caf\u00e9", "\u65e5\u672c\u8a9e \u30c6\u30ad\u30b9", "a_b-c.d/e"),
    *("\ufb01ne", "x'y\"z\\", "100% of *", "run \U0001f600 now", "\u0661\u0662\u0663"),
    *("NEAR AND OR NOT", "body:x", "it''s", "<-> & | ! :*", "\u00b2\u2460\u2168", "e\u0301t\u00e9"),
)
ASKED = (
    *(word for name in NAMES for word in name.split()),
    *("\u00fcber", "CAF\u00c9", "\u30c6\u30ad", "b-c", "c d", '"x', "'x'", "x'y", "100", "10"),
    *("NOT", "a* OR b", "body:x", "x)", "(x", "^x", "x:*", "-x", "+x", "x & y", "x | z", "x <-> y"),
    *("\u0661", "now run", "run now", "u0661", "e\u0301", "\u00e9t"),
)


class Texts(NamedTuple):
    """Runs with odd names, and what each question found while none was summarised."""

    store: Ingested
    stale: dict[str, list[str]]


@pytest.fixture(scope="module", params=STORES)
def texts(request: pytest.FixtureRequest, new_store: Callable[[str], str]) -> Iterator[Texts]:
    """One run for each name, on each kind of store."""
    with ingested(new_store(request.param)) as store:
        for number, name in enumerate(NAMES):
            given_ = operation_of(f"n{number}", workflow="w", operation=name)
            store.send(span(number + 1, given_))
        stale = {asked: found(store, asked) for asked in ASKED if words.phrases_of(asked)}
        fold_all(store.store)
        yield Texts(store, stale)


def found(store: Ingested, asked: str) -> list[str]:
    """The names of the runs that a question finds."""
    runs = store.reader.runs(1, RunFilters(q=asked)).items
    return sorted(NAMES[int(run.run_id[1:])] for run in runs)


def test_both_ways_find_the_same(texts: Texts) -> None:
    """Contract, section 5: whatever is asked, full text and evidence agree, on either store."""
    assert {asked: found(texts.store, asked) for asked in texts.stale} == texts.stale


def test_each_name_is_found_by_its_words(texts: Texts) -> None:
    """Contract, section 5: letters and digits of every script are words, their case aside."""
    for name in NAMES:
        if words.words_of(name):
            assert name in found(texts.store, name)
            assert name in found(texts.store, name.upper())


def test_syntax_is_text(texts: Texts) -> None:
    """Security: operators of SQLite and PostgreSQL are words like others, or nothing."""
    assert found(texts.store, "x OR 100") == []
    assert found(texts.store, "NOT") == ["NEAR AND OR NOT"]
    assert found(texts.store, "body:x") == ["body:x"]
    assert found(texts.store, "x'y") == ["x'y\"z\\"]


def test_a_long_run_is_found_by_each_of_its_groups(texts: Texts) -> None:
    """Contract, section 5: a word that a run repeats hides none of those beside it."""
    spans = [span(number, attempt(f"long-{number}", 1), trace=7) for number in range(1, 401)]
    texts.store.send(*spans)
    for _ in range(2):
        for asked, number in (("long-1", 1), ("long-399", 1), ("long 400", 1), ("long-401", 0)):
            assert len(texts.store.reader.runs(1, RunFilters(q=asked)).items) == number
        fold_all(texts.store.store)


@given(st.text(), st.text())
def test_words_of_a_text_are_found_in_it(text: str, other: str) -> None:
    """Contract, section 5: each part of a text finds it, and words are of letters and digits."""
    body = words.body_of([other, text])
    assert words.matches(body, words.phrases_of(text))
    assert body.isascii()
    assert all(word.isalnum() for word in body.split())
