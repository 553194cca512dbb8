"""Runs the fuzzer: ``python -m tests.fuzz [TARGET …] [--seconds N] [--findings DIR]``.

Each target has a process of its own for so long. What it meets that is new grows a corpus under
``--findings``, beside the kept one that it begins with; an input that breaks a law is written
there too, and named. The exit code is 1 if there is any.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"
_MAX_INPUT: Final = 16_384
_MAX_MEBIBYTES: Final = 1024
_CLOSING_SECONDS: Final = 60
_KINDS: Final = ("crash-", "timeout-", "oom-", "slow-unit-")


def main(arguments: list[str] | None = None) -> int:
    """Fuzz; the exit code."""
    from tests.fuzz.targets import EVERY, TARGETS  # noqa: PLC0415 - the child instruments what it imports

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--findings", type=Path, help="a folder; a new one where none is given")
    given = parser.parse_args(arguments)
    unknown = [each for each in given.targets if each not in EVERY]
    if unknown:
        parser.error(f"there is no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    findings = given.findings or Path(tempfile.mkdtemp(prefix="flowmark-fuzz-"))
    broken = 0
    for name in given.targets or TARGETS:
        found = _fuzz(name, given.seconds, findings / name)
        broken += bool(found)
    return 1 if broken else 0


def _fuzz(name: str, seconds: int, folder: Path) -> list[Path]:
    """Fuzz one target; the inputs that broke a law."""
    grown = folder / "corpus"
    grown.mkdir(parents=True, exist_ok=True)
    # A child begins with the peak of whoever started it: the kernel keeps it across exec.
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    command = [
        *(sys.executable, "-m", "tests.fuzz.child", name, str(grown)),
        *([str(CORPUS / name)] if (CORPUS / name).is_dir() else []),
        *(f"-max_total_time={seconds}", f"-max_len={_MAX_INPUT}", f"-artifact_prefix={folder}/"),
        *("-timeout=10", f"-rss_limit_mb={inherited + _MAX_MEBIBYTES}", "-print_final_stats=1"),
    ]
    began = time.monotonic()
    log = folder / "log.txt"
    with log.open("wb") as output:
        code = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=seconds + _CLOSING_SECONDS,
        ).returncode
    text = log.read_text("utf-8", "replace")
    found = sorted(each for kind in _KINDS for each in folder.glob(f"{kind}*"))
    runs = _figure(text, "stat::number_of_executed_units:")
    _say(
        f"{name}: {runs} inputs in {time.monotonic() - began:.0f} s, "
        f"{len(list(grown.iterdir()))} kept, {len(found)} broke a law"
    )
    if code and not found:
        _say(text[-2000:])
        found = [log]
    for each in found:
        _say(f"  {each}: see {log}")
    return found


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _figure(text: str, label: str) -> str:
    _, _, after = text.rpartition(label)
    return after.strip().partition("\n")[0] or "?"


if __name__ == "__main__":
    sys.exit(main())
