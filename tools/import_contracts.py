"""The import contract that import-linter does not bring: dotted externals, modules yet to come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils
from importlinter.application.contract_utils import AlertLevel

_FROM = re.compile(r"\s*from\s+([\w.]+)\s+import\s+(.*)")
_IMPORT = re.compile(r"\s*import\s+(.*)")


class AvoidsContract(Contract):
    """Modules of the root package that never import some external modules.

    ``modules``: relative to the root package, descendants included; one that does not exist yet
    is passed over. ``avoided``: external modules by dotted name, descendants included.
    ``through_others``: whether what they import inside the root package is bound too (default).
    """

    type_name = "avoids"

    # Declared as fields, read as what the fields parse.
    modules: Any = fields.SetField(subfield=fields.StringField())
    avoided: Any = fields.SetField(subfield=fields.StringField())
    through_others: Any = fields.BooleanField(required=False, default=True)
    ignore_imports: Any = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002, FBT001 - the base's signature
        """Find each import of an avoided module in what the modules reach."""
        removal = contract_utils.remove_ignored_imports_and_report(
            graph=graph, ignore_imports=self.ignore_imports, unmatched_alerting=AlertLevel.ERROR
        )
        root = self.session_options["root_packages"][0]
        found: list[str] = []
        for module in sorted(f"{root}.{name}" for name in self.modules):
            if module in graph.modules:
                found += self._illegal(graph, module, root)
        return ContractCheck(
            kept=not found,
            warnings=list(removal.warnings),
            ignored_import_count=removal.ignored_import_count,
            metadata={"illegal": found},
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each illegal import by module and line; where indirect, how it is reached."""
        for line in check.metadata["illegal"]:
            output.print_error(line)
        output.new_line()

    def _illegal(self, graph: ImportGraph, module: str, root: str) -> Iterator[str]:
        own = {module, *graph.find_descendants(module)}
        reached = set(own)
        if self.through_others:
            reached |= graph.find_upstream_modules(module, as_package=True)
        for importer in sorted(name for name in reached if name.partition(".")[0] == root):
            for detail in _external_imports(graph, importer, root):
                for avoided in sorted(self.avoided & _prefixes(detail["line_contents"])):
                    way = "" if importer in own else f" (which {module} imports)"
                    yield f"{importer}{way} imports {avoided}, line {detail['line_number']}"


def _external_imports(graph: ImportGraph, importer: str, root: str) -> Iterator[Any]:
    for imported in sorted(graph.find_modules_directly_imported_by(importer)):
        if imported.partition(".")[0] != root:
            yield from graph.get_import_details(importer=importer, imported=imported)


def _prefixes(statement: str) -> set[str]:
    """Every module an import statement may name, with its parents."""
    names: list[str] = []
    if found := _FROM.match(statement):
        names = [found[1], *(f"{found[1]}.{name}" for name in _listed(found[2]))]
    elif found := _IMPORT.match(statement):
        names = _listed(found[1])
    parts = [name.split(".") for name in names]
    return {".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)}


def _listed(text: str) -> list[str]:
    return [word.split()[0] for word in re.split(r"[,()#]", text) if word.strip()]
