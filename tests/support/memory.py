"""What a process holds, as Linux tells it."""

from __future__ import annotations

from pathlib import Path


def peak_mib(pid: int) -> int:
    """The peak of a process's resident memory in MiB."""
    return _mib(pid, "VmHWM:")


def forget_peak(pid: int) -> None:
    """Let the peak begin anew, from what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def _mib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) // 1024
    msg = f"process {pid} tells no {name}"
    raise LookupError(msg)
