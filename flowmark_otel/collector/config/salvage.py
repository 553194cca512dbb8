"""A section by its model, its faults, and what can be read of it beside them.

One fault must not hide another: the rules between sections are judged on what is left of a section
when the places of its faults are taken away. No plan is ever made of that.
"""

from __future__ import annotations

from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from flowmark_otel.collector.config import wording
from flowmark_otel.collector.config.document import Path

Model = TypeVar("Model", bound=BaseModel)

_ROUNDS: Final = 3  # a section without what it needs goes too, and what needs that one


def read(model: type[Model], value: object) -> tuple[Model | None, list[tuple[Path, str]]]:
    """What a value says, or can still be read of it, and each fault: its path and words."""
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        faults = wording.faults_of(error, model)
    paths = [path for path, _ in faults]
    for _ in range(_ROUNDS):
        value = _without(value, [path if _holds(value, path) else path[:-1] for path in paths])
        try:
            return model.model_validate(value), faults
        except ValidationError as error:
            paths = [path for path, _ in wording.faults_of(error, model)]
    return None, faults


def _holds(value: object, path: Path) -> bool:
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True


def _without(value: object, paths: list[Path]) -> object:
    if not isinstance(value, dict):
        return value
    gone = {path[0] for path in paths if len(path) == 1}
    kept: dict[object, object] = {}
    for key, each in value.items():
        if key in gone:
            continue
        below = [path[1:] for path in paths if path[:1] == (key,)]
        # A list without one of its entries says something else: it goes as a whole.
        if below and not isinstance(each, dict):
            continue
        kept[key] = _without(each, below)
    return _consistent(kept, gone)


def _consistent(kept: dict[object, object], gone: set[str | int]) -> dict[object, object]:
    """Nothing is made of the default of ``on_error`` where something else was meant."""
    if "on_error" in gone:
        kept.pop("failure_budget", None)
        if "errors" in kept:
            kept["on_error"] = "route"
    if "errors" in gone and kept.get("on_error") == "route":
        del kept["on_error"]
        kept.pop("failure_budget", None)
    return kept
