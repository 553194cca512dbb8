"""The entry point of ``flowmark-otel``; imports without the server extra (contract, section 7)."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

USAGE: Final = 2
_ROOT: Final = "flowmark_otel.commands.root"


def main() -> None:
    """Run the command line; where packages of the server extra are missing, name the mend.

    Exits 0 if all is well, 1 if the answer is no, 2 on wrong usage.
    """
    # What the C core of gRPC logs is for its developers; a port in use is said in our own words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import_module(_ROOT).root(prog_name="flowmark-otel")
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if not package or package == "flowmark_otel":
            raise
        sys.stderr.write(
            f"flowmark-otel: this needs the package {package!r}, which is not installed.\n"
            "Install the server extra: pip install 'flowmark-otel[server]'\n"
            "or, for collect and replay alone: pip install 'flowmark-otel[collector]'\n"
        )
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
