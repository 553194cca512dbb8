"""What pydantic found wrong, in our words: the place, what was found, and the mend.

Values that a variable gave, and those of headers and tokens, are never quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from flowmark_otel.collector.config.document import Path
from flowmark_otel.collector.config.environment import FromEnvironment
from flowmark_otel.collector.config.options import classes
from flowmark_otel.collector.config.values import nearest, shown

_SECRET: Final = frozenset({"headers", "token", "tokens"})
_COVER: Final = "what the environment gave"
_POINTERS: Final = {
    "sending_queue": "leave it out: nothing is queued but in the spool of the exporter flowmark",
    "retry_on_failure": "write retry: {max_attempts, backoff_ms, max_backoff_ms}",
    "timeout": "write element_timeout_ms and deadline_ms",
    "storage": "set spool in the exporter flowmark",
    "readers": "set address",
    "client_ca_file": "leave it out: senders are known by their token",
}


def faults_of(error: ValidationError, model: type[BaseModel]) -> list[tuple[Path, str]]:
    """Each fault of a section: its path below the section, and what is said of it."""
    return [_worded(each, model) for each in error.errors(include_url=False)]


def _worded(error: ErrorDetails, model: type[BaseModel]) -> tuple[Path, str]:
    path = tuple(part for part in error["loc"] if part != "[key]")
    if error["type"] == "extra_forbidden":
        return path, _unknown(str(path[-1]), _model_at(model, path[:-1]))
    found = _found(error["input"], path)
    if error["type"] == "value_error":
        return path, _covered(str(error["ctx"]["error"]), error["input"])
    words = _WORDS.get(error["type"])
    if words is not None:
        return path, words(found, _field_at(model, path), error)
    return path, f"{found} cannot be used; {error['msg'][:1].lower()}{error['msg'][1:]}"


def _unknown(key: str, model: type[BaseModel] | None) -> str:
    pointer = _POINTERS.get(key)
    if pointer is not None:
        return f"there is no such key here; {pointer}"
    return f"there is no such key{nearest(key, model.model_fields if model else ())}"


def _found(value: object, path: Path) -> str:
    """What was found, as far as it may be told."""
    if isinstance(value, (dict, list, tuple)):
        return "a map" if isinstance(value, dict) else "a list"
    if any(part in _SECRET for part in path):
        return "what was found"
    if isinstance(value, FromEnvironment):
        return _COVER
    if value is None:
        return "nothing"
    return str(value).lower() if isinstance(value, bool) else shown(value)


def _covered(said: str, value: object) -> str:
    """The same without what variables gave."""
    if isinstance(value, FromEnvironment) and value:
        for shape in (repr(str(value)), shown(str(value)), str(value)):
            said = said.replace(shape, _COVER)
    elif isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            said = _covered(said, each)
    return said


_Words = Callable[[str, "FieldInfo | None", ErrorDetails], str]


def _missing(_found: str, _field: FieldInfo | None, _error: ErrorDetails) -> str:
    return "is missing; set it"


def _over(found: str, field: FieldInfo | None, error: ErrorDetails) -> str:
    return f"{found} is over {error['ctx']['le']}; {_range(field)}"


def _under(found: str, field: FieldInfo | None, error: ErrorDetails) -> str:
    return f"{found} is below {error['ctx']['ge']}; {_range(field)}"


def _integer(found: str, field: FieldInfo | None, _error: ErrorDetails) -> str:
    return f"{found} is no integer; {_range(field)}"


def _choice(found: str, _field: FieldInfo | None, error: ErrorDetails) -> str:
    expected = str(error["ctx"]["expected"]).replace("'", "")
    return f"{found} is none of its values; set {expected}"


def _text(found: str, _field: FieldInfo | None, _error: ErrorDetails) -> str:
    return f"{found} is no text; set text, in quotes where it looks like something else"


def _truth(found: str, _field: FieldInfo | None, _error: ErrorDetails) -> str:
    return f"{found} is neither true nor false; set one of them"


def _map(found: str, _field: FieldInfo | None, _error: ErrorDetails) -> str:
    return f"{found} stands where settings belong; write a map of them"


def _list(found: str, _field: FieldInfo | None, _error: ErrorDetails) -> str:
    return f"{found} stands where a list belongs; write [one, another]"


def _few(_found: str, _field: FieldInfo | None, _error: ErrorDetails) -> str:
    return "is empty; name at least one"


_WORDS: Final[Mapping[str, _Words]] = {
    "missing": _missing,
    "less_than_equal": _over,
    "greater_than_equal": _under,
    "int_parsing": _integer,
    "int_parsing_size": _integer,
    "int_type": _integer,
    "int_from_float": _integer,
    "finite_number": _integer,
    "literal_error": _choice,
    "string_type": _text,
    "string_unicode": _text,
    "path_type": _text,
    "bool_type": _truth,
    "bool_parsing": _truth,
    "dict_type": _map,
    "model_type": _map,
    "tuple_type": _list,
    "too_short": _few,
}


def _range(field: FieldInfo | None) -> str:
    """``set 1 to 10``, by the bounds that the field declares."""
    bounds = _bounds(field) if field is not None else {}
    low, high = bounds.get("ge"), bounds.get("le")
    return "set an integer" if low is None or high is None else f"set {low} to {high}"


def _bounds(field: FieldInfo) -> dict[str, object]:
    found: dict[str, object] = {}
    kinds: list[Any] = [field.annotation]
    metadata = list(field.metadata)
    while kinds:  # ``Annotated[int, …] | None`` keeps its bounds on the inside
        kind = kinds.pop()
        metadata += getattr(kind, "__metadata__", ())
        if get_origin(kind) in {Union, UnionType}:
            kinds += get_args(kind)
    while metadata:
        each = metadata.pop()
        if isinstance(each, FieldInfo):
            metadata += each.metadata
        elif isinstance(each, Ge):
            found["ge"] = each.ge
        elif isinstance(each, Le):
            found["le"] = each.le
    return found


def _field_at(model: type[BaseModel], path: Path) -> FieldInfo | None:
    """The field that a path ends at, or that holds the list it ends in."""
    owner = _model_at(model, path[:-1])
    return owner.model_fields.get(str(path[-1])) if owner is not None and path else None


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    found: type[BaseModel] | None = model
    for part in path:
        field = found.model_fields.get(str(part)) if found is not None else None
        found = _section(field) if field is not None else None
    return found


def _section(field: FieldInfo) -> type[BaseModel] | None:
    return next((each for each in classes(field) if issubclass(each, BaseModel)), None)
