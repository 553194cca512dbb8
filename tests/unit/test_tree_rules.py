"""The rules of the tree: sizes, reasons beside exceptions, one version, constraints that fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("flowmark_otel", "tests", "examples", "proto", "tools")
GENERATED = ROOT / "flowmark_otel" / "wire" / "pb"
MAX_LINES = 500


def sources() -> list[Path]:
    """Every file of code that people write."""
    found = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if GENERATED not in path.parents)


def section(heading: str, text: str) -> str:
    """A list or table of pyproject.toml, from its heading to the next closing bracket or table."""
    start = text.index(heading) + len(heading)
    return re.split(r"^(?:\]|\[)", text[start:], maxsplit=1, flags=re.MULTILINE)[0]


def test_files_are_small() -> None:
    """No file has more than 500 lines: one reason to exist each."""
    long = [path for path in sources() if len(path.read_text().splitlines()) > MAX_LINES]
    assert long == []


def test_every_module_says_what_it_is_for() -> None:
    """Every file begins with a docstring."""
    silent = [path for path in sources() if not path.read_text().startswith(('"""', "#!", 'r"""'))]
    assert silent == []


def test_ignored_rules_have_reasons() -> None:
    """All lint rules are on, and each exception has its reason beside it."""
    text = (ROOT / "pyproject.toml").read_text()
    assert 'select = ["ALL"]' in text
    ignored = section("ignore = [\n", text).splitlines()
    per_file = section("[tool.ruff.lint.per-file-ignores]\n", text)
    entries = re.findall(r'^ +"[A-Z]+\d+",.*$|^".*= \[".*$', per_file, re.MULTILINE)
    bare = [line for line in (*ignored, *entries) if "#" not in line]
    assert ignored
    assert entries
    assert bare == []


def test_exceptions_from_security_rules_have_reasons() -> None:
    """Security: every exception from a security rule says beside it why it is none."""
    marked = re.compile(r"# noqa: [A-Z0-9, ]*\bS\d{3}\b(.*)")
    found = [
        (path, reason)
        for path in sources()
        for reason in marked.findall(path.read_text())
        if path != Path(__file__)
    ]
    assert len(found) > 10
    assert [path for path, reason in found if not re.match(r"(?:, [A-Z]+\d+)*\s+\S", reason)] == []


@pytest.mark.parametrize("module", ["names", "model", "errors", "clock", "config"])
def test_foundation_modules_import_only_each_other(module: str) -> None:
    """The lowest layers need nothing but the standard library at import."""
    one, many = ROOT / "flowmark_otel" / f"{module}.py", ROOT / "flowmark_otel" / module
    text = one.read_text() if one.exists() else "".join(p.read_text() for p in many.glob("*.py"))
    top = re.findall(r"^(?:from|import) ([\w.]+)", text, re.MULTILINE)
    foreign = {"opentelemetry", "google", "grpc", "requests", "starlette", "sqlalchemy", "pydantic"}
    assert not foreign & {name.partition(".")[0] for name in top}


def test_constraints_name_versions_only() -> None:
    """Constraints are names, exact versions and Python markers: they fit every platform."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pattern = re.compile(r'[\w.-]+==[\w.+]+(; python_version (<|>=) "3\.\d+")?')
    assert [line for line in lines[1:] if not pattern.fullmatch(line)] == []


def test_typed_marker_is_there() -> None:
    """The package tells type checkers that it is typed."""
    assert (ROOT / "flowmark_otel" / "py.typed").is_file()
