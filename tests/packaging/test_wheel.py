"""What a person gets who installs the wheel, in clean environments outside the tree."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tools.versions import interpreters, lower_bounds, with_pipx

ROOT = Path(__file__).resolve().parents[2]
SERVER_ONLY = ("sqlalchemy", "starlette", "uvicorn", "click", "rich", "pydantic", "jinja2")

pytestmark = pytest.mark.timeout(300)  # environments are made and filled


def run(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with nothing of this process's Python in its environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    home = {"HOME": str(cwd), "XDG_DATA_HOME": str(cwd / "data")}
    cache = {"PIP_CACHE_DIR": clean.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))}
    done = subprocess.run(
        command, cwd=cwd, env=clean | home | cache, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        pytest.fail(f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """The wheel."""
    return next(dist.glob("*.whl"))


def environment(folder: Path, requirement: str) -> Path:
    """The folder of programs of a new environment with one requirement installed."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    constraints = ("-c", ROOT / "constraints.txt")
    run(programs / "python", *install, *constraints, requirement, cwd=folder)
    return programs


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment with the base install alone."""
    return environment(tmp_path_factory.mktemp("base"), str(wheel))


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment with everything."""
    return environment(tmp_path_factory.mktemp("full"), f"{wheel}[all]")


def test_wheel_carries_what_it_needs(wheel: Path) -> None:
    """The wheel has every module, the data files and the licence, and nothing else of the tree."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "flowmark_otel"
    wanted = {
        str(path.relative_to(ROOT))
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert wanted <= names
    others = {name for name in names - wanted if ".dist-info/" not in name}
    assert others == set()
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_sdist_can_be_worked_on(dist: Path) -> None:
    """The sdist carries tests, protocol sources and the rules, so that it can be checked."""
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "LICENSE",
        "Makefile",
        "constraints.txt",
        "proto/generate.py",
        "pyproject.toml",
        "semconv/attributes.yaml",
        "tests/conftest.py",
        "tools/import_contracts.py",
    }
    assert wanted <= names


def test_base_install_imports_no_server_module(base: Path, tmp_path: Path) -> None:
    """The base install imports, brings no server dependency and loads no server module."""
    script = (
        "import sys, importlib.util, flowmark_otel, flowmark_otel.config, flowmark_otel.fold\n"
        "loaded = sorted(n for n in sys.modules if n.startswith('flowmark_otel.'))\n"
        f"found = [n for n in {SERVER_ONLY} if importlib.util.find_spec(n)]\n"
        "print(found, [n for n in loaded if n.split('.')[1] in "
        "('server', 'backend', 'dashboard', 'listen', 'cli', 'commands')])"
    )
    done = run(base / "python", "-W", "error", "-c", script, cwd=tmp_path)
    assert done.stdout.strip() == "[] []"


def test_base_install_names_the_missing_extra(base: Path, tmp_path: Path) -> None:
    """Without the server extra the command says which extra to install, and exits with 2."""
    done = run(base / "flowmark-otel", "--help", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "flowmark-otel[server]" in done.stderr
    assert "Traceback" not in done.stderr


def test_full_install_has_the_command(full: Path, tmp_path: Path) -> None:
    """Contract, section 7: the command lists its commands, and knows its version."""
    done = run(full / "flowmark-otel", "--help", cwd=tmp_path)
    assert "serve" in done.stdout
    version = run(full / "flowmark-otel", "--version", cwd=tmp_path).stdout
    assert version.split()[-1] in (ROOT / "pyproject.toml").read_text()


def test_demo_works_from_an_empty_folder(full: Path, tmp_path: Path) -> None:
    """A27: the installed demo records its story against a real backend and says what it saw."""
    done = run(full / "flowmark-otel", "demo", "--once", cwd=tmp_path)
    assert "failed" in done.stdout
    assert "completed" in done.stdout


EVERY_MODULE = """
import importlib, pkgutil, flowmark_otel
for found in pkgutil.walk_packages(flowmark_otel.__path__, "flowmark_otel."):
    if ".migrations." in found.name:  # Alembic runs these itself
        continue
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:  # an adapter's library, or pytest
        if error.name.startswith("flowmark_otel"):
            raise
print("imported")
"""


@pytest.mark.timeout(600)  # a second environment, by a pip of that Python
def test_it_works_on_another_python(wheel: Path, tmp_path: Path) -> None:
    """A26: the wheel works on another Python of this machine, the oldest supported that is here.

    Every module can be imported there, and the demo works. Where there is no other it is this one.
    ``make versions`` tries all of them, and more.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}."
    others = [each.python for each in interpreters() if not each.version.startswith(own)]
    run([*others, sys.executable][0], "-m", "venv", tmp_path / "env", cwd=tmp_path)
    programs = tmp_path / "env" / "bin"
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    constraints = ("-c", ROOT / "constraints.txt")
    run(programs / "python", *install, *constraints, f"{wheel}[all]", cwd=tmp_path)
    assert run(programs / "python", "-c", EVERY_MODULE, cwd=tmp_path).stdout == "imported\n"
    done = run(programs / "flowmark-otel", "demo", "--once", cwd=tmp_path)
    assert "completed" in done.stdout


def test_demo_works_by_pipx(wheel: Path) -> None:
    """A27: `pipx run` shows the demo, and nothing has to be installed for good."""
    assert with_pipx(wheel).demo == "passed"


def test_lower_bounds_are_pins(wheel: Path) -> None:
    """The oldest versions that `make versions` tries are those that the wheel allows."""
    pins = lower_bounds(wheel, "all")
    project = (ROOT / "pyproject.toml").read_text()
    assert {pin.partition("=")[0] for pin in pins} >= {"grpcio", "sqlalchemy", "psycopg[binary]"}
    assert [pin for pin in pins if f'"{pin.replace("==", ">=")}' not in project] == []


def test_types_are_visible_to_users(full: Path, tmp_path: Path) -> None:
    """The installed package is typed: a user's mistake is found by their type checker."""
    (tmp_path / "good.py").write_text(
        "from flowmark_otel.model import Attempt\nAttempt('group', 1)\n"
    )
    (tmp_path / "bad.py").write_text(
        "from flowmark_otel.model import Attempt\nAttempt('group', '1')\n"
    )
    command = (sys.executable, "-m", "mypy", "--python-executable", full / "python")
    assert run(*command, "good.py", cwd=tmp_path, check=False).returncode == 0
    done = run(*command, "bad.py", cwd=tmp_path, check=False)
    assert "arg-type" in done.stdout
