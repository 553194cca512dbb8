"""A search in bytes, in the words of each dialect."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class Contains(FunctionElement[bool]):
    """Whether the first argument, bytes, contains the second."""

    name = "contains"
    type = Boolean()
    inherit_cache = True


@compiles(Contains, "sqlite")
def _sqlite(element: Contains, compiler: SQLCompiler, **given: Any) -> str:  # noqa: ANN401
    return f"instr({compiler.process(element.clauses, **given)}) > 0"


@compiles(Contains, "postgresql")
def _postgresql(element: Contains, compiler: SQLCompiler, **given: Any) -> str:  # noqa: ANN401
    whole, part = element.clauses
    return f"position({compiler.process(part, **given)} in {compiler.process(whole, **given)}) > 0"
