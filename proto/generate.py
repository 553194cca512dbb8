"""Generate ``flowmark_otel/wire/pb`` from ``proto/flowmark/v1``: the one command is ``make proto``.

The compiler is pinned to the release whose output runs under every protobuf runtime that
opentelemetry-proto allows (5.26 and later): newer compilers write code that refuses older
runtimes. It is a binary without dependencies, so it is installed into a folder of its own, where
its declared requirement of an old protobuf meets nobody.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto"
PACKAGE = SOURCES / "flowmark" / "v1"
TARGET = ROOT / "flowmark_otel" / "wire" / "pb"
COMPILER = "grpcio-tools==1.63.2"
COMPILER_FOLDER = ROOT / ".tools" / "-".join((COMPILER, *map(str, sys.version_info[:2])))
OUTPUTS = ("_pb2.py", "_pb2.pyi")


def install_compiler() -> None:
    """Put the pinned compiler into its folder, unless it is there."""
    if (COMPILER_FOLDER / "grpc_tools" / "protoc.py").exists():
        return
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    target = ["--only-binary", ":all:", "--target", str(COMPILER_FOLDER), COMPILER]
    subprocess.run([sys.executable, *install, *target], check=True)


def generate() -> dict[str, bytes]:
    """What the compiler makes of the sources now: file name to content."""
    install_compiler()
    sources = sorted(str(path.relative_to(SOURCES)) for path in PACKAGE.glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--proto_path={SOURCES}", f"--python_out={folder}", f"--pyi_out={folder}"]
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", *outputs, *sources],
            check=True,
            env={"PYTHONPATH": str(COMPILER_FOLDER)},
        )
        made = Path(folder, PACKAGE.relative_to(SOURCES)).iterdir()
        return {path.name: path.read_bytes() for path in made}


def checked_in() -> dict[str, bytes]:
    """What stands in the tree: file name to content."""
    return {
        path.name: path.read_bytes() for path in TARGET.iterdir() if path.name.endswith(OUTPUTS)
    }


def main() -> int:
    """Write the generated files, or with ``--check`` say whether they are up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    wanted = generate()
    if parser.parse_args().check:
        present = checked_in()
        stale = sorted(name for name in wanted | present if wanted.get(name) != present.get(name))
        for name in stale:
            print(f"{name} differs from its generator's output; run `make proto`", file=sys.stderr)
        return 1 if stale else 0
    for name in checked_in().keys() - wanted.keys():
        (TARGET / name).unlink()
    for name, content in wanted.items():
        (TARGET / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
