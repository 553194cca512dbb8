"""A workflow declared once: its name, its operations and the type of its result (A26)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeVar, Unpack

from flowmark_otel.annotate.options import OperationDefinition, OperationOptions, shown
from flowmark_otel.annotate.workflow import Workflow
from flowmark_otel.model import RunRef, Value

if TYPE_CHECKING:
    from typing_extensions import Never

ResultT = TypeVar("ResultT", bound=Mapping[str, object], default=Mapping[str, Value])


class WorkflowDefinition(Generic[ResultT]):
    """Names a workflow once, and the type of what its runs report.

    ``result`` is a ``TypedDict`` class, for type checkers. ``operation`` names an operation once,
    with the options that all its attempts share; ``Workflow.operation``, ``call`` and ``acall``
    take it in the place of a name.
    """

    __slots__ = ("_name", "_operations")

    def __init__(self, name: str, *, result: type[ResultT] | None = None) -> None:  # noqa: ARG002 - says the type
        self._name = name
        self._operations: list[str] = []

    @property
    def name(self) -> str:
        """The workflow's name."""
        return self._name

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the operations, in the order declared."""
        return tuple(self._operations)

    def operation(self, name: str, **options: Unpack[OperationOptions]) -> OperationDefinition:
        """Declare an operation; an option given where it is used goes before one given here."""
        self._operations.append(name)
        return OperationDefinition(name, options)

    def start(
        self,
        *,
        run_id: str | None = None,
        retry_of: RunRef | None = None,
        parent_run_id: str | None = None,
        correlation_id: str | None = None,
        **unknown: Never,
    ) -> Workflow[ResultT]:
        """Start a run; as ``workflow``."""
        return Workflow(self._name, run_id, retry_of, (parent_run_id, correlation_id), unknown)

    def __repr__(self) -> str:
        operations = ", ".join(map(shown, self._operations)) or "no operations named"
        return f"<workflow {shown(self._name)!r}: {operations}>"
