"""Opening a store: its file, its schema, its migrations (D5; contract, section 7)."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert, make_url

from flowmark_otel.backend.store import migrate, open_store, schema
from flowmark_otel.backend.store.sqlite import SqliteDatabase
from flowmark_otel.backend.store.sqlite.statements import Statements
from flowmark_otel.backend.store.store import BACKEND_ID
from flowmark_otel.backend.store.tables import Statements as AllStatements
from flowmark_otel.errors import ConfigurationError, SchemaMismatch


def test_the_migrations_make_what_the_tables_declare(tmp_path: Path) -> None:
    """D5: a migrated store and the declared tables are the same, to the last index."""
    path = tmp_path / "store.db"
    open_store(f"sqlite:///{path}").close()
    opened = database(path).readers()
    with opened.connect() as connection:
        options = {"include_object": lambda *given: not str(given[1]).startswith("search")}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, schema.metadata) == []
    opened.dispose()
    declared = create_engine(f"sqlite:///{tmp_path}/declared.db")
    schema.metadata.create_all(declared)
    declared.dispose()
    assert statements_of(path) == statements_of(tmp_path / "declared.db")


def database(path: Path) -> SqliteDatabase:
    """The database in a file."""
    return SqliteDatabase(make_url(f"sqlite:///{path}"))


def statements_of(path: Path) -> dict[str, str]:
    """The statements that made tables and indices, white space aside."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'alembic_version'"
    ).fetchall()
    connection.close()
    # A table that was copied under another name comes out of it with its name in quotes.
    return {name: " ".join(sql.replace('"', "").split()) for name, sql in found}


def test_every_migration_is_known() -> None:
    """Contract, section 7: `serve` tells old from newer by the list of all revisions."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).with_name("migrations")))
    scripts = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(reversed([script.revision for script in scripts])) == migrate.REVISIONS


def test_file_and_folder_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    """Security: evidence is readable by its owner only, in the log beside the file too."""
    path = tmp_path / "new" / "folder" / "store.db"
    store = open_store(f"sqlite:///{path}")
    files = sorted(path.parent.iterdir())
    names = ["store.db", "store.db-shm", "store.db-turn", "store.db-wal"]
    assert [each.name for each in files] == names
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    store.close()


def test_a_store_keeps_its_id(tmp_path: Path) -> None:
    """Contract, section 3: the backend id is stable, and another store has another."""
    ids = []
    for name in ("a.db", "a.db", "b.db"):
        store = open_store(f"sqlite:///{tmp_path}/{name}")
        ids.append(store.backend_id)
        store.close()
    assert ids[0] == ids[1] != ids[2]


def test_commits_are_durable_and_readers_do_not_wait(tmp_path: Path) -> None:
    """I1: the write connection syncs every commit; WAL lets readers go on meanwhile."""
    path = tmp_path / "store.db"
    store = open_store(f"sqlite:///{path}")
    with database(path).writing().connect() as connection, connection.begin():
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        with store.engine.connect() as reader:
            assert reader.execute(schema.runs.select()).all() == []
    store.close()


def test_readers_cannot_write(tmp_path: Path) -> None:
    """D5: one writer; the engine of the readers refuses to write."""
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    with store.engine.connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.execute(schema.meta.insert().values(name="x", value="y"))
    store.close()


@pytest.mark.parametrize("asked", [True, False])
def test_a_newer_schema_is_refused(tmp_path: Path, *, asked: bool) -> None:
    """Fault row 27: a store of a newer version is never touched, migration or not."""
    url = at_revision(tmp_path, "9999")
    with pytest.raises(SchemaMismatch, match=r"newer.*flowmark-otel migrate --db sqlite:"):
        open_store(url, migrate=asked)


@pytest.mark.parametrize("revision", migrate.REVISIONS[:-1])
def test_an_old_schema_is_refused_unless_asked(tmp_path: Path, revision: str) -> None:
    """Contract, section 7: an old store is refused, naming the command, and left as it is."""
    path = tmp_path / "store.db"
    url = f"sqlite:///{path}"
    made_by(revision, path)
    before = statements_of(path)
    with pytest.raises(SchemaMismatch, match=rf"flowmark-otel migrate --db {url}$"):
        open_store(url)
    assert statements_of(path) == before
    open_store(url, migrate=True).close()
    open_store(f"sqlite:///{tmp_path}/new.db").close()
    assert statements_of(path) == statements_of(tmp_path / "new.db")


def made_by(revision: str, path: Path) -> None:
    """Make a store as the version with that revision made it."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).with_name("migrations")))
    made = database(path)
    made.create()
    opened = made.writing()
    with opened.connect() as connection, connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.execute(insert(schema.meta).values(name=BACKEND_ID, value="a" * 32))
    opened.dispose()


def at_revision(tmp_path: Path, revision: str) -> str:
    """The URL of a store that says it is at a revision."""
    path = tmp_path / "store.db"
    open_store(f"sqlite:///{path}").close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    """Contract, section 7: a database that is no store of ours is not turned into one."""
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(SchemaMismatch, match="no store"):
        open_store(f"sqlite:///{path}", migrate=True)
    assert list(statements_of(path)) == ["t"]


@pytest.mark.parametrize(
    "url", ["", "store.db", "sqlite://", "sqlite:///:memory:", "mysql://localhost/x"]
)
def test_a_url_that_cannot_be_served_is_refused(url: str) -> None:
    """Contract, section 7: `--db` names what to set instead."""
    with pytest.raises(ConfigurationError, match=r"--db: .*sqlite:////"):
        open_store(url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Fault row 27: what is no SQLite file is refused loudly and left as it is."""
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(ConfigurationError, match="no SQLite database"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes().startswith(b"not a database")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """Contract, section 7: `--db` on a path below a file names the path and the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"--db: .*cannot be made"):
        open_store(f"sqlite:///{tmp_path}/file/store.db")


def test_an_up_to_date_store_opens_without_alembic(tmp_path: Path) -> None:
    """Issue 2, Speed: migrations are loaded only where there is something to migrate."""
    url = f"sqlite:///{tmp_path}/store.db"
    open_store(url).close()
    code = (
        "import sys; from flowmark_otel.backend.store import open_store;"
        f"open_store({url!r}).close(); print('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("name", "fixed"),
    [("events", 2), ("runs", 0), ("occurrences", 0), ("places", 0), ("rejections", 2)],
)
def test_what_is_judged_against_is_found_by_index(tmp_path: Path, name: str, fixed: int) -> None:
    """Issue 2, Speed: no look-up of the writer scans a table, however many rows there are."""
    path = tmp_path / "store.db"
    open_store(f"sqlite:///{path}").close()
    text = getattr(AllStatements(Statements()), name).text(64)
    connection = sqlite3.connect(path)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", [None] * text.count("?")).fetchall()
    connection.close()
    steps = [step[3] for step in plan if "CONSTANT ROW" not in step[3]]
    assert steps[:2] == ["CO-ROUTINE given", "SCAN given"]
    searches = [step for step in steps[2:] if "USE TEMP B-TREE" not in step]
    assert searches
    assert all(step.startswith("SEARCH ") for step in searches)
    assert text.count("?") % 64 == fixed
