"""One target under the fuzzer: ``python -m tests.fuzz.child TARGET [libFuzzer arguments]``."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["flowmark_otel"]):
    from tests.fuzz.targets import EVERY

if __name__ == "__main__":
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, EVERY[name])
    atheris.Fuzz()
