"""What reads bytes from strangers, against the kept inputs and, for some seconds, new ones."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzzer
from tests.fuzz.targets import TARGETS

SECONDS = 4
HAS_WHEEL = pytest.mark.skipif(
    find_spec("atheris") is None, reason="the fuzzer, atheris, has no wheel for this Python"
)
KEPT = [
    pytest.param(target, path, id=f"{name}-{path.name}")
    for name, target in TARGETS.items()
    for path in sorted((fuzzer.CORPUS / name).iterdir())
]


@pytest.mark.parametrize(("target", "path"), KEPT)
def test_kept_inputs_keep_the_laws(target: Callable[[bytes], None], path: Path) -> None:
    """Rows 16 to 21: every kept input, those that once broke a law among them, keeps it."""
    target(path.read_bytes())


@HAS_WHEEL
@pytest.mark.parametrize("name", TARGETS)
def test_new_inputs_keep_the_laws(
    name: str,
    tmp_path: Path,
    campaign: Callable[[int, int], int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Rows 16 to 21: for some seconds no input is found that breaks a law."""
    seconds = str(campaign(SECONDS, 10 * SECONDS))
    code = fuzzer.main([name, "--seconds", seconds, "--findings", str(tmp_path)])
    said = capfd.readouterr()
    assert code == 0, said.out + said.err
    assert "0 broke a law" in said.out


@HAS_WHEEL
def test_a_broken_law_is_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An input that breaks a law ends the run with 1, and is named."""
    code = fuzzer.main(["broken", "--seconds", "20", "--findings", str(tmp_path)])
    said = capfd.readouterr().out
    assert code == 1
    assert "1 broke a law" in said
    assert list((tmp_path / "broken").glob("crash-*"))
