"""A structural check of JSON against the schemas of our own OpenAPI document, and no more."""

from __future__ import annotations

import re
from typing import Any, Final

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}


def faults(
    value: object, schema: dict[str, Any], document: dict[str, Any], at: str = "$"
) -> list[str]:
    """What of ``value`` does not fit ``schema``; references are to ``document``'s components."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return faults(value, document["components"]["schemas"][name], document, at)
    if "anyOf" in schema:
        tried = [faults(value, one, document, at) for one in schema["anyOf"]]
        return [] if [] in tried else [fault for some in tried for fault in some]
    kind = schema["type"]
    wrong = not isinstance(value, _TYPES[kind])
    if wrong or (isinstance(value, bool) and kind != "boolean"):
        return [f"{at} is no {kind}: {value!r}"]
    if isinstance(value, dict):
        return _object_faults(value, schema, document, at)
    if isinstance(value, list):
        return _array_faults(value, schema, document, at)
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at} is none of {schema['enum']}: {value!r}"]
    if schema.get("format") == "date-time" and not _TIME.fullmatch(str(value)):
        return [f"{at} is no time with nine digits: {value!r}"]
    return []


def _object_faults(
    value: dict[str, Any], schema: dict[str, Any], document: dict[str, Any], at: str
) -> list[str]:
    known = schema.get("properties", {})
    others = schema["additionalProperties"]
    found = [f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, one in value.items():
        if name in known:
            found += faults(one, known[name], document, f"{at}.{name}")
        elif others is False:
            found.append(f"{at}.{name} is not in the document")
        else:
            found += faults(one, others, document, f"{at}.{name}")
    return found


def _array_faults(
    value: list[Any], schema: dict[str, Any], document: dict[str, Any], at: str
) -> list[str]:
    found = []
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        found.append(f"{at} has {len(value)} items")
    for index, one in enumerate(value):
        found += faults(one, schema["items"], document, f"{at}[{index}]")
    return found
