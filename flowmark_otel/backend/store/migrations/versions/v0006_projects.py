"""The project in what is looked up by names: occurrences by group id, and the words of runs.

Revision: 0006, from 0005. Both are filled from the rows that a store holds.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_WORDS = {
    "sqlite": (
        "INSERT INTO search (rowid, body)"
        " SELECT run, CASE body WHEN '' THEN ''"
        " ELSE CAST(:code AS TEXT) || replace(body, ' ', ' ' || CAST(:code AS TEXT)) END"
        " FROM summaries WHERE project_id = :project ORDER BY run"
    ),
    "postgresql": (
        "UPDATE search SET body = array_to_tsvector(ARRAY("
        "SELECT CAST(:code AS text) || word FROM unnest(tsvector_to_array(search.body)) AS word))"
        " FROM summaries WHERE summaries.run = search.run AND summaries.project_id = :project"
    ),
}


def upgrade() -> None:
    """Give each occurrence the project of its run, and each word the code of its project."""
    dialect = op.get_bind().dialect.name
    if dialect == "sqlite":
        _copy_occurrences()
    else:
        _update_occurrences()
    op.create_index(
        "occurrences_elsewhere",
        "occurrences",
        ["project_id", "group_id", "operation", "run"],
        unique=False,
        sqlite_where=sa.text("group_id IS NOT NULL"),
        postgresql_where=sa.text("group_id IS NOT NULL"),
    )
    _words(dialect)


def _copy_occurrences() -> None:
    """A column without a default, which SQLite adds to a new table only."""
    columns = (
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("operation_id", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=True),
        sa.Column("number", sa.BigInteger(), nullable=True),
        sa.Column("fields", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("start_event", sa.BigInteger(), nullable=True),
        sa.Column("end_event", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("duration_ns", sa.BigInteger(), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("decided", sa.SmallInteger(), server_default="0", nullable=False),
    )
    kept = ", ".join(column.name for column in columns)
    op.create_table(
        "occurrences_new",
        *columns,
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", "operation_id"),
        sqlite_with_rowid=False,
    )
    # Those of a run that was deleted and is still being removed belong to nobody any more.
    op.execute(
        f"INSERT INTO occurrences_new ({kept}, project_id)"  # noqa: S608  own names
        f" SELECT {kept}, coalesce((SELECT project_id FROM runs WHERE runs.id = run), 0)"
        " FROM occurrences ORDER BY run, operation_id"
    )
    op.drop_table("occurrences")  # and its indices
    op.rename_table("occurrences_new", "occurrences")
    op.create_index(
        "occurrences_by_place",
        "occurrences",
        ["run", "operation", "group_id", "number"],
        unique=True,
        sqlite_where=sa.text("group_id IS NOT NULL"),
    )


def _update_occurrences() -> None:
    op.drop_index("occurrences_elsewhere", "occurrences")
    op.drop_index("occurrences_by_place", "occurrences")  # written once, in the end
    op.add_column("occurrences", sa.Column("project_id", sa.BigInteger(), nullable=True))
    op.execute(
        "UPDATE occurrences SET project_id = runs.project_id FROM runs"
        " WHERE runs.id = occurrences.run"
    )
    op.execute("UPDATE occurrences SET project_id = 0 WHERE project_id IS NULL")
    op.alter_column("occurrences", "project_id", nullable=False)
    op.create_index(
        "occurrences_by_place",
        "occurrences",
        ["run", "operation", "group_id", "number"],
        unique=True,
        postgresql_where=sa.text("group_id IS NOT NULL"),
    )


def _words(dialect: str) -> None:
    """The words are made anew from those of the summaries."""
    if dialect == "sqlite":
        op.execute("INSERT INTO search (search) VALUES ('delete-all')")
    else:
        op.execute("DROP INDEX search_by_word")
    connection = op.get_bind()
    for project in connection.execute(sa.text("SELECT id FROM projects ORDER BY id")).scalars():
        given = {"project": project, "code": _code(project)}
        connection.execute(sa.text(_WORDS[dialect]), given)
    if dialect != "sqlite":
        op.execute("CREATE INDEX search_by_word ON search USING gin (body)")


def _code(project: int) -> str:
    """The length of the id in base 36, then the id, as ``summary.search`` writes it."""
    digits = ""
    while project:
        project, digit = divmod(project, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return _DIGITS[len(digits)] + digits
