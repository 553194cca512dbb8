"""Full text of runs: SQLite's FTS5, PostgreSQL's tsvector. Words are quoted (``words``).

Each word is kept behind the code of its project, so a question of one project goes through its own
part of the index, however many words others keep. None of another's can be found by mistake: what
is asked for without a code finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, TextClause, text

from flowmark_otel.backend.evidence import chunks

_SQLITE: Final = "sqlite"
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ADD: Final = {
    _SQLITE: text("INSERT INTO search (rowid, body) VALUES (:run, :body)"),
    "postgresql": text("INSERT INTO search (run, body) VALUES (:run, CAST(:body AS tsvector))"),
}
_REMOVE: Final = {
    # What holds no text of its own has to be told what to take away.
    _SQLITE: text("INSERT INTO search (search, rowid, body) VALUES ('delete', :run, :body)"),
    "postgresql": text("DELETE FROM search WHERE run = :run"),
}
_CLEAR: Final = {
    _SQLITE: text("INSERT INTO search (search) VALUES ('delete-all')"),
    "postgresql": text("DELETE FROM search"),
}
_LATEST: Final = {
    _SQLITE: text(
        "SELECT rowid FROM search WHERE search MATCH :asked ORDER BY rowid DESC LIMIT :most"
    ),
    # A vector keeps few places of a word, so it finds the words, and the body tells the phrases.
    "postgresql": text(
        "SELECT search.run FROM search JOIN summaries ON summaries.run = search.run"
        " WHERE search.body @@ CAST(:asked AS tsquery)"
        " AND ' ' || summaries.body LIKE ALL (:patterns) LIMIT :most"
    ),
}
_AMONG: Final = {
    _SQLITE: text(
        "SELECT rowid FROM search WHERE search MATCH :asked AND rowid BETWEEN :first AND :last"
    ),
    "postgresql": text(
        "SELECT run FROM summaries WHERE run = ANY(:runs) AND project_id + 0 = :project_id"
        " AND ' ' || body LIKE ALL (:patterns)"
    ),
}


def code_of(project_id: int) -> str:
    """What the words of a project begin with; none begins with that of another project.

    Its length as a digit of base 36, then the id in that base: two characters for most.
    """
    digits = ""
    while project_id:
        project_id, digit = divmod(project_id, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return _DIGITS[len(digits)] + digits


def add(connection: Connection, project_id: int, bodies: Sequence[tuple[int, str]]) -> None:
    """Keep the words of runs of a project, given by ``runs.id``."""
    dialect = connection.dialect.name
    code = code_of(project_id)
    written = _text if dialect == _SQLITE else vector
    rows = [{"run": run, "body": written(code, body)} for run, body in bodies]
    if rows:
        connection.execute(_ADD[dialect], rows)


def remove(connection: Connection, project_id: int, bodies: Sequence[tuple[int, str]]) -> None:
    """Forget the words of runs of a project; these are all that was kept of them."""
    code = code_of(project_id)
    rows = [{"run": run, "body": _text(code, body)} for run, body in bodies]
    if rows:
        connection.execute(_REMOVE[connection.dialect.name], rows)


def clear(connection: Connection) -> None:
    """Forget the words of all runs."""
    connection.execute(_CLEAR[connection.dialect.name])


def some(
    connection: Connection, project_id: int, phrases: Sequence[Sequence[str]], most: int
) -> list[int]:
    """The ``runs.id`` of at most so many runs of a project in which all phrases occur."""
    return _run(connection, _LATEST, project_id, phrases, most=most)


def among(
    connection: Connection, project_id: int, phrases: Sequence[Sequence[str]], runs: Iterable[int]
) -> set[int]:
    """Those of some runs, as far as they are of a project, in which all phrases occur."""
    found: set[int] = set()
    for chunk in chunks(sorted(runs)):
        given = {"first": chunk[0], "last": chunk[-1], "runs": list(chunk)}
        found.update(_run(connection, _AMONG, project_id, phrases, **given))
    return found


def _run(
    connection: Connection,
    statements: dict[str, TextClause],
    project_id: int,
    phrases: Sequence[Sequence[str]],
    **given: object,
) -> list[int]:
    dialect = connection.dialect.name
    code = code_of(project_id)
    coded = [[code + word for word in phrase] for phrase in phrases]
    given["asked"] = _match(coded) if dialect == _SQLITE else _query(coded)
    given["project_id"] = project_id
    # Words are of letters and digits alone: none is a sign of LIKE's.
    given["patterns"] = [f"% {' '.join(phrase)}%" for phrase in phrases]
    statement = statements[dialect]
    wanted = statement.compile().params.keys()
    found = connection.execute(statement, {name: given[name] for name in wanted})
    return [row[0] for row in found.all()]


def _match(phrases: Sequence[Sequence[str]]) -> str:
    """The phrases as FTS5 reads them; the last word of each may go on."""
    return " AND ".join(f'"{" ".join(phrase)}" *' for phrase in phrases)


def _query(phrases: Sequence[Sequence[str]]) -> str:
    """The words of the phrases as tsquery reads them; the last word of each may go on."""
    return " & ".join(
        " & ".join([*(f"'{word}'" for word in phrase[:-1]), f"'{phrase[-1]}':*"])
        for phrase in phrases
    )


def _text(code: str, body: str) -> str:
    return " ".join(code + word for word in body.split())


def vector(code: str, body: str) -> str:
    """What PostgreSQL keeps of the words of a run, as text."""
    return " ".join(f"'{code}{word}'" for word in dict.fromkeys(body.split()))
