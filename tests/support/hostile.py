"""Arguments that no function was made for: wrong types, extremes, objects that raise at a touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias


def _raise(*_: object, **__: object) -> NoReturn:
    msg = "an object that cannot be touched"
    raise RuntimeError(msg)


class Untouchable:
    """Raises whatever is asked of it."""

    __str__ = __repr__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = _raise
    __getattr__ = __call__ = __float__ = __int__ = __index__ = __enter__ = _raise


class BrokenMapping(Mapping[str, object]):
    """A mapping that cannot be read."""

    __getitem__ = __iter__ = __len__ = _raise


class BrokenText(str):
    """A text of a class of its own, which says nothing of itself."""

    __slots__ = ()
    __str__ = __repr__ = __len__ = __eq__ = isspace = strip = encode = _raise
    __hash__ = str.__hash__


class BrokenNumber(int):
    """A number of a class of its own."""

    __slots__ = ()
    __str__ = __repr__ = __eq__ = __lt__ = __gt__ = __le__ = __float__ = _raise
    __hash__ = int.__hash__


def values() -> Iterator[Any]:
    """Each of them, made anew."""
    yield from (None, True, 0, -1, 2**63, 10**400, 10**5000, 1e308, Decimal("1.5"))
    yield from (float("nan"), float("inf"), -float("inf"))
    yield from ("", " ", "x" * 100_000, "\ud800", "a\0b", b"raw", bytearray(b"x"))
    yield from ([], ["a"], (), {}, {1: 2}, {"\ud800": 1}, {"a": {"a": None}}, {None: None})
    yield from (object(), Untouchable(), BrokenMapping(), BrokenText("text"), BrokenNumber(1))
    yield from (int, Untouchable, _raise, lambda: None, ValueError("e"), NotImplemented, ...)


def name_of(value: object) -> str:
    """What a value is, for the message of a test that fails."""
    try:
        return repr(value)[:40]
    except Exception:  # noqa: BLE001 - that is what they do
        return type(value).__name__


Call: TypeAlias = Callable[[Any], object]
