"""The text of the collector's file: YAML as the Collector reads it, bounded, variables put in."""

from __future__ import annotations

from typing import Any

import pytest

from flowmark_otel.collector.config.document import MAX_BYTES, MAX_VALUES, read
from flowmark_otel.collector.config.environment import MAX_TEXT, expand

LAUGHS = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))]
)


def expanded(text: str, **environ: str) -> Any:
    """The values of a text with variables put in; it has no fault."""
    found = expand(read(text), environ)
    assert found.faults == []
    return found.value


def fault_of(text: str, **environ: str) -> str:
    """The one fault of a text."""
    (found,) = expand(read(text), environ).faults
    return str(found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("", None),
        ("0x10", 16),
        ("0o17", 15),
        ("010", 10),
        ("1e3", 1000.0),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("127.0.0.1:4317", "127.0.0.1:4317"),
    ],
)
def test_scalars_are_read_by_the_core_schema(text: str, value: object) -> None:
    """Section 9, the Collector's grammar: words stay words, and no time becomes an object."""
    assert expanded(f"key: {text}") == {"key": value}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {b: 1, b: 2}", "a.b: stands twice; leave one of them (line 1)"),
        ("a: {<<: 3}", "a.<<: merges what is no map; name the anchor of one (line 1)"),
        ("a: !!python/name:os.system x", "a: has the tag"),
        ("a: !!timestamp 2026-01-01", "a: has the tag"),
        ("? [a]\n: b", "has a key that is no text; write a name (line 1)"),
        ("a: &x [*x]", "a.0: is an alias of what it stands in; write it out (line 1)"),
        ("a: &x {<<: *x}", "a: is an alias of what it stands in; write it out (line 1)"),
        ("a: [", "is no YAML"),
        ("a: 1\n---\nb: 2", "is no YAML"),
        ("a: *nowhere", "is no YAML"),
        ('a: "\\UFFFFFFFF"', "is no YAML: it has an escape that names no character"),
        ("a: \x07", "is no YAML: the character"),
        ("a: " + "[" * 600 + "]" * 600, "is nested deeper than 32 levels; write it flatter"),
        ("a: " + "[" * 40 + "]" * 40, "is nested deeper than 32 levels; write it flatter"),
        (LAUGHS, f"holds more than {MAX_VALUES} values, aliases written out; write fewer"),
        ("a" * (MAX_BYTES + 1), "the file has 262145 bytes; at most 262144 are read"),
    ],
)
def test_what_cannot_be_read_is_one_fault_and_bounded(text: str, said: str) -> None:
    """Section 9 and reliability, "bad input": duplicate keys, tags, bombs and depth are faults."""
    found = read(text).faults
    assert said in str(found[0])


def test_anchors_and_merge_keys_work() -> None:
    """Section 9, the Collector's grammar: an anchor is written once and used again."""
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [*a, {z: 4, x: 5}]}\nd: *a"
    assert expanded(text) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": {"x": 1, "y": 2, "z": 4},
        "d": {"x": 1, "y": 2},
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:A}", "one"),
        ("${A}", "one"),
        ("Bearer ${env:A}, ${B}", "Bearer one, 0123"),
        ("${env:NONE:-two}", "two"),
        ("${env:NONE:-}", ""),
        ("${env:A:-two}", "one"),
        ("${env:NONE:-${env:A}}", "one"),
        ("${env:NAME_OF_${env:SUFFIX}}", "found"),
        ("$${env:A}", "${env:A}"),
        ("$$${env:A}", "$one"),
        ("$$", "$"),
        ("$A", "$A"),
        ("a}b", "a}b"),
        ("${env:INDIRECT}", "one"),
        ("${env:B}", "0123"),
        ("${env:LIST}", ["a", "b"]),
        ("${env:MAP}", {"x": 1}),
        ("x${env:LIST}", "x[a, b]"),
    ],
)
def test_variables_are_put_in_as_the_collector_does(text: str, value: object) -> None:
    """Section 9: ``${env:NAME}``, ``${NAME}``, defaults, ``$$``, nested, in parts and whole."""
    environ = {
        "A": "one",
        "B": "0123",
        "NAME_OF_X": "found",
        "SUFFIX": "X",
        "INDIRECT": "${env:A}",
        "LIST": "[a, b]",
        "MAP": "{x: 1}",
    }
    assert expanded(f"key: '{text}'", **environ) == {"key": value}


def test_keys_are_left_as_they_are() -> None:
    """Section 9, the Collector's grammar: only values are expanded."""
    assert expanded("{'${A}': ['${A}']}", A="one") == {"${A}": ["one"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "${env:NONE}",
            (
                "the environment variable NONE is not set; set it, or write a default,"
                " ${env:NONE:-…} (line 1)"
            ),
        ),
        ("${NONE:-x}", "a default needs the scheme; write ${env:NONE:-x} (line 1)"),
        ("${file:/etc/passwd}", "knows no scheme 'file'; write ${env:NAME}, or $${ for itself"),
        ("${env:1A}", "'1A' is no name of a variable"),
        ("${}", "'' is no name of a variable"),
        ("${env:LOOP}", "has more than 100 references in one another; write the value"),
        ("${env:GROWS}", f"grows over {MAX_TEXT} characters when it is expanded"),
    ],
)
def test_a_reference_that_cannot_be_followed_is_a_fault(text: str, said: str) -> None:
    """Section 9: an unset variable is named before the start; loops and growth are bounded."""
    long = "x" * (MAX_TEXT - 100)
    held = {"LOOP": "${env:LOOP}", "GROWS": f"{long}${{env:LONG}}", "LONG": long}
    found = fault_of(f"key: '{text}'", **held)
    assert found.startswith("key: ")
    assert said in found
