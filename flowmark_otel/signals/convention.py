"""What is said of one convention by which something else marks its tries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

Keys: TypeAlias = tuple[str, ...]
"""Spellings of one attribute; the first that a span carries counts."""


class Outcome(NamedTuple):
    """How a try ended: ``of`` gives True if it failed, False if not, None if nothing says so.

    ``of`` is asked where the status of the span is not ERROR: that has failed in any case.
    ``reads``: the keys that ``of`` looks at.
    """

    says: str
    reads: Keys
    of: Callable[[Mapping[str, object]], bool | None]


class Convention(NamedTuple):
    """One row of the table of signals.

    ``marks``: keys of which a span of this convention carries one, else it is none. ``number``:
    the count of the try, ``base`` what the first one counts as, ``absent`` the number of a try
    without a count, None where that says nothing, ``zero_unknown`` whether 0 stands for not known.
    ``pattern``: takes the count, and the limit, out of a text. ``group``: the attributes that name
    the group, joined by slashes. ``where``: a key, or the empty text for the span's name, and the
    values that it has on tries; ``others`` says what spans of other values are. ``operation``: the
    attribute that names the operation, the span's name if none.

    ``statuses``: where the HTTP status stands, if redirects and challenges have spans of their own:
    a resend after one is no retry, and it no failure.
    ``doubt``: what keeps group or number from being a fact; such a one is only read if it is named.
    ``never``: why no span of this convention can become an attempt, whatever is set.
    ``total``: the count is of all tries within the one span.
    """

    name: str
    source: str
    marks: Keys
    number: Keys
    base: int = 0
    absent: int | None = None
    zero_unknown: bool = False
    pattern: str = ""
    group: tuple[Keys, ...] = ()
    where: tuple[str, Keys] | None = None
    others: str = ""
    operation: Keys = ()
    outcome: Outcome | None = None
    statuses: Keys = ()
    doubt: str = ""
    never: str = ""
    total: bool = False
    unnumbered: Keys = ()

    @property
    def reads(self) -> frozenset[str]:
        """All keys that are looked at."""
        found = {*self.marks, *self.number, *self.operation, *self.unnumbered, *self.statuses}
        found.update(*self.group)
        if self.where is not None and self.where[0]:
            found.add(self.where[0])
        if self.outcome is not None:
            found.update(self.outcome.reads)
        return frozenset(found)

    @property
    def is_safe(self) -> bool:
        """Whether group and number are facts."""
        return not self.doubt and not self.never


def by_state(key: str, completed: Keys, failed: Keys) -> Outcome:
    """The outcome that an attribute states; other states say nothing."""
    states: Final = {**dict.fromkeys(completed, False), **dict.fromkeys(failed, True)}

    def of(attributes: Mapping[str, object]) -> bool | None:
        state = attributes.get(key)
        return states.get(state) if isinstance(state, str) else None

    done, bad = " or ".join(completed), " or ".join(failed)
    return Outcome(f"`{key}`: {done} completed, {bad} failed", (key,), of)


BY_STATUS: Final = Outcome("ERROR failed, else completed", (), lambda _: False)
"""Of what is known to set ERROR on every try that failed."""

UNSAID: Final = Outcome("ERROR failed, else not known", (), lambda _: None)
"""Of what leaves the status of a try that failed alone."""
