"""``python -m tests.bench [NAME]… [--json FILE]``: exit 1 if a target is missed.

Of ``collector``: ``--otelcol FILE``, a stock Collector to measure beside it, and ``--minutes N``, a
soak of that length. Of ``lists`` and ``lists-postgres``: ``--stores FOLDER``, where filled
stores are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.bench import (
    adapters,
    agents,
    bomb,
    client,
    collector,
    ingest,
    lists,
    overload,
    pages,
    phoenix,
    postgres,
    reading,
    shapes,
    sizing,
    startup,
    summarising,
)
from tests.bench.report import Figure, show

BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {
    "startup": startup.measure,
    "ingest": ingest.measure,
    "postgres": postgres.measure,
    "reading": reading.measure,
    "lists": lists.measure,
    "lists-postgres": lists.measure_postgresql,
    "pages": pages.measure,
    "client": client.measure,
    "adapters": adapters.measure,
    "collector": collector.measure,
    "collector-stock": collector.measure_stock,
    "shapes": shapes.measure,
    "bomb": bomb.measure,
    "overload": overload.measure,
    "summarising": summarising.measure,
    "sizing": sizing.measure,
    "sizing-postgres": sizing.measure_postgresql,
    "phoenix": phoenix.measure,
}

ONLY_IF_NAMED = ("phoenix", "collector-stock")
"""One installs something of others and has no target, the other is a part of ``collector``."""


def main(arguments: list[str]) -> int:
    """Run the named benchmarks, or all but those that want to be named."""
    given = _option(arguments, "--json")
    out = None if given is None else Path(given)
    program, minutes = _option(arguments, "--otelcol"), _option(arguments, "--minutes")
    collector.OPTIONS.otelcol = Path(program) if program else agents.built_otelcol()
    collector.OPTIONS.minutes = float(minutes or 0)
    stores = _option(arguments, "--stores")
    lists.OPTIONS.stores = None if stores is None else Path(stores)
    unknown = [name for name in arguments if name not in BENCHMARKS]
    if unknown:
        sys.stderr.write(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}\n")
        return 2
    figures: list[Figure] = []
    for name in arguments or [name for name in BENCHMARKS if name not in ONLY_IF_NAMED]:
        sys.stderr.write(f"{name} …\n")
        figures += BENCHMARKS[name]()
    return 0 if show(figures, out) else 1


def _option(arguments: list[str], name: str) -> str | None:
    """The value of an option, which is taken out of the arguments."""
    if name not in arguments:
        return None
    at = arguments.index(name)
    value = arguments[at + 1]
    del arguments[at : at + 2]
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
