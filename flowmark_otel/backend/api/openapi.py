"""The OpenAPI document, made from the table of requests and the fields of the views."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from flowmark_otel.backend.api.deletions import DELETIONS, Deletion, DeletionView
from flowmark_otel.backend.api.endpoints import ENDPOINTS, PREFIX, Endpoint
from flowmark_otel.backend.api.errors import ErrorAnswer
from flowmark_otel.backend.api.parameters import Parameter
from flowmark_otel.backend.views import Page, Time

Schema: TypeAlias = dict[str, Any]

_PLAIN: Final[Mapping[object, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    Time: {"type": "string", "format": "date-time"},
}
_REFUSALS: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


def document() -> Schema:
    """The document that ``/api/v1/openapi.json`` answers."""
    schemas: dict[str, Schema] = {}
    paths = {f"{PREFIX}{one.path}": {"get": _operation(one, schemas)} for one in ENDPOINTS}
    for one in DELETIONS:
        paths[f"{PREFIX}{one.path}"]["delete"] = _operation(one, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "flowmark-otel",
            "version": _version(),
            "description": "Attempts and retries as recorded. Times are RFC 3339 UTC with"
            " nanoseconds, durations integers in nanoseconds, unknown is null.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _version() -> str:
    try:
        return version("flowmark-otel")
    except PackageNotFoundError:
        return "0"  # run from a tree that is not installed


def _operation(endpoint: Endpoint | Deletion, schemas: dict[str, Schema]) -> Schema:
    refused = _content(schema_of(ErrorAnswer, schemas))
    view = DeletionView if isinstance(endpoint, Deletion) else endpoint.view
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [
            _parameter(one, required=one.in_path or isinstance(endpoint, Deletion))
            for one in endpoint.parameters
        ],
        "responses": {
            "200": {
                "description": endpoint.summary,
                "content": _content(schema_of(view, schemas)),
            },
            **{
                str(int(status)): {"description": status.phrase, "content": refused}
                for status in _REFUSALS
            },
        },
    }


def _parameter(parameter: Parameter, *, required: bool) -> Schema:
    return {
        "name": parameter.name,
        "in": "path" if parameter.in_path else "query",
        "required": required,
        "description": parameter.help,
        "schema": dict(parameter.schema),
    }


def _content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def schema_of(hint: Any, schemas: dict[str, Schema]) -> Schema:  # noqa: ANN401 (any type hint)
    """The JSON schema of a field's type; records are added to ``schemas`` and referred to."""
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(one, schemas) for one in arguments]}
    if origin is tuple:
        return _tuple(arguments, schemas)
    if origin is Page:
        return _page(arguments[0], schemas)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1], schemas)}
    if not dataclasses.is_dataclass(hint):
        msg = f"no JSON form is known for {hint!r}"
        raise TypeError(msg)
    return _record(hint, schemas)


def _tuple(arguments: Sequence[Any], schemas: dict[str, Schema]) -> Schema:
    items = schema_of(arguments[0], schemas)
    if arguments[-1] is Ellipsis:
        return {"type": "array", "items": items}
    size = len(arguments)
    return {"type": "array", "items": items, "minItems": size, "maxItems": size}


def _page(item: Any, schemas: dict[str, Schema]) -> Schema:  # noqa: ANN401 (any type hint)
    name = f"PageOf{item.__name__}"
    schemas[name] = _object(
        Page,
        {"items": schema_of(tuple[item, ...], schemas), "next": schema_of(str | None, schemas)},
    )
    return {"$ref": f"#/components/schemas/{name}"}


def _record(record: Any, schemas: dict[str, Schema]) -> Schema:  # noqa: ANN401 (a dataclass)
    name = record.__name__
    if name not in schemas:
        schemas[name] = {}  # taken, should a record hold itself
        hints = get_type_hints(record)
        fields = {
            field.name: schema_of(hints[field.name], schemas)
            for field in dataclasses.fields(record)
        }
        schemas[name] = _object(record, fields)
    return {"$ref": f"#/components/schemas/{name}"}


def _object(record: type, fields: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "description": inspect.getdoc(record) or "",
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }
