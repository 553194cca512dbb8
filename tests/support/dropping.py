"""What statements do, one by one, and what they would do without their project condition.

``Watch`` stands between the package and the database, for statements of SQLAlchemy as well as for
those that the writer runs on the driver itself. It names each by the function that runs it and its
text, keeps the rows it gives, and drops the project condition of one of them on demand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from sqlalchemy import BinaryExpression, Column, Connection, TextClause, text as text_of
from sqlalchemy.dialects.postgresql import dialect as dialect_of_postgresql
from sqlalchemy.exc import UnsupportedCompilationError
from sqlalchemy.sql import operators, visitors

import flowmark_otel
from flowmark_otel.backend.store.postgresql import statements as postgresql
from flowmark_otel.backend.store.sqlite import statements

_PACKAGE: Final = Path(flowmark_otel.__file__).parent
_PROJECT: Final = "project_id"
# ``project_id = ?``, ``project_id + ? = ?``, and where tables are joined.
_COMPARED: Final = re.compile(r"\bproject_id(?: \+ [?0])? = |= \w+\.project_id\b")
_IN_TEXT: Final = re.compile(r"\bproject_id(?: \+ 0)? = :project_id\b")
_OF_DRIVER: Final = re.compile(r"\b\w+\.project_id = (\?|%b::\w+|given\.project_id)")
# Frames of their own in some versions of Python only; the function around them is meant.
_WITHIN: Final = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_SPACE: Final = re.compile(r"\s+")


class Site(NamedTuple):
    """A statement: the function that runs it, as ``read/runs.py find``, and its text."""

    function: str
    text: str


class Ran(NamedTuple):
    """A statement that was run, and the rows it gave or the number it changed."""

    site: Site
    rows: object


class Watch:
    """All statements of the package while ``watching``; of one thread's work at a time."""

    def __init__(self) -> None:
        self.ran: list[Ran] = []
        self.dropped: Site | None = None

    def reset(self, dropped: Site | None = None) -> None:
        """Forget what ran; drop this condition from now on, None for none."""
        self.ran = []
        self.dropped = dropped

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Stand between the package and its databases for one ``with`` block."""
        with (
            patch.object(Connection, "execute", self._executing(Connection.execute)),
            patch.object(statements.Seek, "run", self._seeking(statements.Seek.run)),
            patch.object(statements.Seek, "text", self._texts(statements.Seek.text)),
            patch.object(statements.Update, "text", self._texts(statements.Update.text)),
            patch.object(postgresql.Seek, "run", self._asking(postgresql.Seek.run)),
            patch.object(postgresql.Update, "run", self._asking(postgresql.Update.run)),
        ):
            yield self

    def _executing(self, execute: Any) -> Any:
        def run(connection: Connection, statement: Any, *given: Any, **options: Any) -> Any:
            function = _function(sys._getframe(1))
            if function is None:
                return execute(connection, statement, *given, **options)
            site = Site(function, _text(statement))
            if site == self.dropped:
                statement = without_project(statement)
            result = execute(connection, statement, *given, **options)
            # An insert may give the key that the database chose, which is asked for by name.
            if not result.returns_rows or getattr(statement, "is_insert", False):
                self.ran.append(Ran(site, result.rowcount))
                return result
            frozen = result.freeze()
            self.ran.append(Ran(site, [tuple(row) for row in frozen().all()]))
            return frozen()

        return run

    def _seeking(self, run: Any) -> Any:
        text = statements.Seek.text

        def seek(of: Any, driver: Any, keys: Any, fixed: Sequence[object] = ()) -> Any:
            site = Site(_function(sys._getframe(1)) or "", text(of, 1))
            rows = list(run(of, driver, keys, fixed))
            self.ran.append(Ran(site, rows))
            return iter(rows)

        return seek

    def _asking(self, run: Any) -> Any:
        """The same for PostgreSQL, where a statement has one text for any number of keys."""

        def ask(of: Any, driver: Any, keys: Any, fixed: Sequence[object] = ()) -> Any:
            text = of._text
            site = Site("", text)
            given = (keys, fixed) if isinstance(of, postgresql.Seek) else (keys,)
            try:
                if site == self.dropped:
                    of._text = _unconditional(text)
                found = run(of, driver, *given)
                rows = None if found is None else list(found)
            finally:
                of._text = text
            if _OF_DRIVER.search(text):
                self.ran.append(Ran(site, rows))
            return None if rows is None else iter(rows)

        return ask

    def _texts(self, text: Any) -> Any:
        """The statements of the driver are the same wherever they are run: known by their text."""

        def rendered(of: Any, rows: int) -> str:
            written: str = text(of, rows)
            site = Site("", text(of, 1))
            if _OF_DRIVER.search(written):
                self.ran.append(Ran(site, None))
            return _unconditional(written) if site == self.dropped else written

        return rendered


def is_conditional(site: Site) -> bool:
    """Whether a statement compares a project, so that there is something to drop.

    A seek is noted twice, by its caller for its rows and by its text for its condition.
    """
    if site.function:
        return bool(_COMPARED.search(site.text)) and "WITH given" not in site.text
    return True


def without_project(statement: Any) -> Any:
    """The statement with every comparison of a project replaced by one that always holds.

    It names the column still, so that the statement reads the same tables.
    """

    def replaced(element: Any, **_given: Any) -> Any:
        return element.left.is_not(None) if _compares_project(element) else None

    if isinstance(statement, TextClause):
        always = "CAST(:project_id AS bigint) IS NOT NULL"
        return text_of(_IN_TEXT.sub(always, statement.text))
    made = visitors.replacement_traverse(statement, {}, replaced)
    assert not _COMPARED.search(_text(made)), _text(made)
    return made


def _compares_project(element: Any) -> bool:
    return (
        isinstance(element, BinaryExpression)
        and element.operator is operators.eq
        and any(_is_project(side) for side in (element.left, element.right))
    )


def _is_project(element: Any) -> bool:
    """A column of this name, alone or with nothing added to it."""
    if isinstance(element, BinaryExpression) and element.operator is operators.add:
        element = element.left
    return isinstance(element, Column) and (
        element.name == _PROJECT or (element.table.name, element.name) == ("projects", "id")
    )


def _unconditional(text: str) -> str:
    def always(found: re.Match[str]) -> str:
        return "1 = 1" if found[1].startswith("given") else f"{found[1]} IS NOT NULL"

    return _OF_DRIVER.sub(always, text)


def _text(statement: Any) -> str:
    """What it says, compiled once for all of the same shape, as SQLAlchemy itself does."""
    key = statement._generate_cache_key()
    if key is None:
        return _compiled(statement)
    found = _TEXTS.get(key.key)
    if found is None:
        found = _TEXTS[key.key] = _compiled(statement)
    return found


_TEXTS: Final[dict[Any, str]] = {}


def _compiled(statement: Any) -> str:
    try:
        text = str(statement.compile(dialect=statements.DIALECT))
    except UnsupportedCompilationError:  # there is only one dialect that has it
        text = str(statement.compile(dialect=_POSTGRESQL))
    return _SPACE.sub(" ", text).strip()


_POSTGRESQL: Final = dialect_of_postgresql(paramstyle="qmark")  # type: ignore[no-untyped-call]


def _function(frame: FrameType | None) -> str | None:
    """The function of the package that asked, below what runs transactions for all of them."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE) and frame.f_code.co_name not in _WITHIN:
            return f"{path.relative_to(_PACKAGE / 'backend')} {frame.f_code.co_name}"
        if path.parent.name in ("contract", "support"):
            return None
        frame = frame.f_back
    return None
