"""Certificates as a person makes them, signed by themselves, for loopback."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    """A certificate, which is its own authority, and its private key, PEM."""

    certificate: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """What ``serve`` takes."""
        return ("--tls-cert", str(self.certificate), "--tls-key", str(self.key))


def make(folder: Path, name: str = "server") -> Pair:
    """A pair for ``localhost`` and ``127.0.0.1``; needs ``openssl``."""
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(pair.key), "-out", str(pair.certificate), "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return pair
