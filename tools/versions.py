"""Tries the wheel on every supported Python of this machine; run as a program it says a table.

Of each interpreter two environments: the newest dependencies, as ``constraints.txt`` has them, and
the oldest that ``pyproject.toml`` allows. In each the demo and a quick part of the tests are run,
from the sdist, without the tree's own package: what is tried is what was installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import Parser
from pathlib import Path
from typing import Final, NamedTuple

import click
from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[1]
MINORS: Final = (10, 11, 12, 13)
NEWEST: Final = "newest"
OLDEST: Final = "oldest"
TESTS: Final = ("tests/unit", "tests/laws")
TOOLS: Final = (
    *("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis"),
    *("backoff", "stamina", "tenacity", "flask", "django", "httpx", "pyyaml"),
)
"""What the quick tests import beside the package, always in the newest version."""

_LIBRARIES: Final = ("backoff", "stamina", "tenacity", "waiting")
"""The adapters whose libraries are among them; and how adapters wait for a library."""

_USABLE: Final = "import ctypes, sqlite3, ssl, sys; print(sys.version.split()[0])"


class Interpreter(NamedTuple):
    """A Python on this machine: ``version`` is the whole one."""

    python: str
    version: str


class Row(NamedTuple):
    """What became of one environment."""

    version: str
    dependencies: str
    demo: str
    tests: str
    seconds: float

    @property
    def good(self) -> bool:
        """Whether nothing failed."""
        return self.demo == "passed" and not re.search("failed|error", self.tests)


def interpreters() -> Iterator[Interpreter]:
    """One of each supported minor version that is on the path or kept by pyenv."""
    kept = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in MINORS:
        name = f"python3.{minor}"
        found = [*filter(None, [shutil.which(name)]), *kept.glob(f"3.{minor}.*/bin/{name}")]
        for python in found:
            said = _run(str(python), "-c", _USABLE)
            if said.returncode == 0:
                yield Interpreter(str(python), said.stdout.strip())
                break


def lower_bounds(wheel: Path, extra: str) -> list[str]:
    """The oldest versions that a wheel and an extra of it allow, as pins.

    Of a package that is named more than once the highest bound holds, as it does for pip.
    """
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    told = [Requirement(each) for each in metadata.get_all("Requires-Dist", [])]
    pins: dict[str, tuple[tuple[int, ...], str]] = {}
    for each in _required(told, metadata["Name"], extra):
        [bound] = [item.version for item in each.specifier if item.operator == ">="]
        extras = f"[{','.join(sorted(each.extras))}]" if each.extras else ""
        numbers = tuple(int(part) for part in re.findall(r"\d+", bound))
        pins[each.name] = max(pins.get(each.name, ((), "")), (numbers, f"{extras}=={bound}"))
    return [f"{name}{pin}" for name, (_, pin) in sorted(pins.items())]


def _required(told: Sequence[Requirement], own: str, extra: str) -> Iterator[Requirement]:
    """What an extra asks for; where it names others of the package, what those do."""
    for each in told:
        if each.marker is not None and not each.marker.evaluate({"extra": extra}):
            continue
        if each.name != own:
            yield each
            continue
        for other in each.extras:
            yield from _required(told, own, other)


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    _checked(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def unpack(sdist: Path, folder: Path) -> Path:
    """The tree of the sdist without the package."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    [tree] = folder.iterdir()
    shutil.rmtree(tree / "flowmark_otel")
    return tree


def install(interpreter: Interpreter, wheel: Path, dependencies: str, folder: Path) -> Path:
    """The programs of a new environment with the wheel, all of its extras and the test tools.

    By uv where that is on the path, since it takes a tenth of the time; else by pip.
    """
    _checked(interpreter.python, "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    uv = shutil.which("uv")
    pip = (uv, "pip", "install", "--python", python) if uv else (python, "-m", "pip", "install")
    wanted = [f"{wheel}[all]", *TOOLS]
    if dependencies == NEWEST:
        wanted += ["-c", str(ROOT / "constraints.txt")]
    else:
        wanted += lower_bounds(wheel, "all")
    _checked(*pip, "--quiet", *wanted)
    return folder / "bin"


def tried(
    interpreter: Interpreter, dependencies: str, wheel: Path, tree: Path, selection: Sequence[str]
) -> Row:
    """What became of an interpreter with such dependencies."""
    began = time.monotonic()
    demo = tests = "not run"
    with tempfile.TemporaryDirectory() as made:
        try:
            programs = install(interpreter, wheel, dependencies, Path(made) / "env")
        except RuntimeError as error:
            click.echo(str(error), err=True)
            demo = "cannot be installed"
        else:
            demo = _demo(str(programs / "flowmark-otel"), folder=Path(made))
            tests = _tests(programs / "python", tree, selection) if selection else tests
    return Row(interpreter.version, dependencies, demo, tests, time.monotonic() - began)


def with_pipx(wheel: Path) -> Row:
    """What ``pipx run`` makes of the demo, pipx being in an environment of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _checked(sys.executable, "-m", "venv", str(folder / "env"))
        programs = folder / "env" / "bin"
        _checked(str(programs / "python"), "-m", "pip", "install", "--quiet", "pipx")
        pipx = (str(programs / "pipx"), "run", "--spec", f"{wheel}[server]", "flowmark-otel")
        homes = {"PIPX_HOME": str(folder / "home"), "PIPX_BIN_DIR": str(folder / "bin")}
        demo = _demo(*pipx, folder=folder, **homes)
    version = ".".join(map(str, sys.version_info[:3]))
    return Row(version, "pipx run", demo, "not run", time.monotonic() - began)


def _demo(*command: str, folder: Path, **more: str) -> str:
    done = _run(*command, "demo", "--once", cwd=folder, XDG_DATA_HOME=str(folder), **more)
    if done.returncode == 0 and "completed" in done.stdout:
        return "passed"
    click.echo(done.stdout + done.stderr, err=True)
    return "failed"


def _tests(python: Path, tree: Path, selection: Sequence[str]) -> str:
    # Left out: what looks at the tree's own package, and what needs libraries that are not here;
    # tests/packaging/test_adapter_releases.py has the oldest release of each.
    left_out = (
        *tree.glob("tests/unit/*_tree_*"),
        tree / "tests/unit/test_operations_docs.py",
        *(
            path
            for path in tree.glob("tests/unit/test_adapters_*.py")
            if not path.stem.removeprefix("test_adapters_").startswith(_LIBRARIES)
        ),
    )
    tree_tests = [f"--ignore={path.relative_to(tree)}" for path in left_out]
    command = (str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2")
    done = _run(*command, *tree_tests, *selection, cwd=tree, CI="")
    click.echo(done.stdout[-6000:] if done.returncode else "", err=True, nl=False)
    return done.stdout.strip().rpartition("\n")[2].strip("= ") or done.stderr[-200:]


def _run(*command: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """A command with nothing of this process's Python in its environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command, cwd=cwd, env=clean | more, capture_output=True, text=True, check=False
    )


def _checked(*command: str) -> None:
    done = _run(*command)
    if done.returncode:
        msg = f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise RuntimeError(msg)


@click.command()
@click.option("--only", multiple=True, metavar="3.N", help="minor versions; all that are here")
@click.option("--dependencies", type=click.Choice([NEWEST, OLDEST]), help="both if not given")
@click.option("--tests", multiple=True, default=TESTS, help="what pytest is given; '' for none")
@click.option("--pipx/--no-pipx", default=True, help="whether the demo is run by pipx, too")
def main(
    only: Sequence[str], dependencies: str | None, tests: Sequence[str], *, pipx: bool
) -> None:
    """Build sdist and wheel, and try the wheel on every supported Python of this machine."""
    wanted = [dependencies] if dependencies else [NEWEST, OLDEST]
    selection = [each for each in tests if each]
    rows = []
    with tempfile.TemporaryDirectory() as made:
        sdist, wheel = build(Path(made) / "dist")
        tree = unpack(sdist, Path(made) / "tree")
        for interpreter in interpreters():
            if only and not interpreter.version.startswith(tuple(f"{each}." for each in only)):
                continue
            for each in wanted:
                rows.append(tried(interpreter, each, wheel, tree, selection))
                click.echo(f"{rows[-1]}", err=True)
        rows += [with_pipx(wheel)] if pipx else []
    click.echo("| Python | dependencies | demo | tests | seconds |\n|---|---|---|---|---|")
    for row in rows:
        told = (row.version, row.dependencies, row.demo, row.tests, f"{row.seconds:.0f}")
        click.echo(f"| {' | '.join(told)} |")
    bad = [
        row for row in rows if row.demo != "passed" or "failed" in row.tests or "error" in row.tests
    ]
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
