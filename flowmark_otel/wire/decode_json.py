"""OTLP/JSON → marked items.

Names in lowerCamelCase, hex ids in either case, 64-bit integers as strings or numbers, unknown
fields ignored, as the OTLP specification has it; names of enum values are read too.
A span of a wrong shape costs that span; a wrong top-level shape costs the request.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.errors import Unparsable
from flowmark_otel.model import LogRecord, Misshapen, Refused, Resource, Span, SpanEvent
from flowmark_otel.signals import NO_SIGNALS, Signals
from flowmark_otel.validate.secrets import redact_text
from flowmark_otel.wire.budget import Budget, OverBudgetError, admit_json


class Names(NamedTuple):
    """The field names that differ between the signals."""

    groups: str
    scopes: str
    items: str
    is_log: bool


TRACES: Final = Names("resourceSpans", "scopeSpans", "spans", is_log=False)
LOGS: Final = Names("resourceLogs", "scopeLogs", "logRecords", is_log=True)


class Decoded(NamedTuple):
    """All items counted, and the marked ones: position, resource, record, resource as it came."""

    items: int
    marked: list[tuple[int, Resource, Span | LogRecord | Refused, Mapping[str, Any]]]


class _WrongShapeError(Exception):
    """A field of one item is of a wrong shape."""


_INTEGER: Final = re.compile(r"-?[0-9]{1,40}")
_READ_EVENTS: Final = (names.EXCEPTION_EVENT, names.ATTEMPT_OBSERVED)
_REPEATED: Final = ("attributes", "events", "links")
_ERROR: Final = 2
_ERROR_CODES: Final = {
    "STATUS_CODE_UNSET": False,
    "STATUS_CODE_OK": False,
    "STATUS_CODE_ERROR": True,
}


def decode(body: bytes, shape: Names, signals: Signals = NO_SIGNALS) -> Decoded:
    """The items of a request that are marked, by us or by a signal. Raises Unparsable, TooLarge."""
    admit_json(body)
    document = load_object(body)
    marked: list[tuple[int, Resource, Span | LogRecord | Refused, Mapping[str, Any]]] = []
    position = 0
    budget = Budget()
    signals = _possible(body, signals)
    for group in objects_of(document, shape.groups, "the body"):
        budget.items(1)
        resource: Resource | None = None
        described: Mapping[str, Any] = {}
        for scope in objects_of(group, shape.scopes, shape.groups):
            items = list_of(scope, shape.items, shape.scopes)
            budget.items(1 + len(items))
            for item in items:
                own = _is_marked(item)
                if own or (signals.marks and _is_signal(item, signals)):
                    budget.annotated()
                    if resource is None:
                        resource = _resource(group)
                        found = group.get("resource")
                        described = found if isinstance(found, dict) else {}
                    record = _record(item, resource, shape, budget, signals)
                    if own or not isinstance(record, Refused):
                        marked.append((position, resource, record, described))
                position += 1
    return Decoded(position, marked)


def load_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; bytes that are no UTF-8 become lone surrogates, or Unparsable."""
    document = _load(body)
    if not isinstance(document, dict):
        msg = f"the body is no JSON object: it is a {type(document).__name__}"
        raise Unparsable(msg)
    return document


def _load(body: bytes) -> Any:  # noqa: ANN401  any JSON
    text = body.decode("utf-8", "surrogateescape")
    try:
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer of more digits than Python converts
            return json.loads(text, parse_int=_bounded_int)
    except RecursionError as error:
        msg = "the body is nested too deeply"
        raise Unparsable(msg) from error
    except json.JSONDecodeError as error:
        msg = f"the body is no JSON: {error.msg} at character {error.pos}"
        raise Unparsable(msg) from error


def _bounded_int(digits: str) -> int:
    """An integer; one of absurd length becomes one that no field can hold."""
    return int(digits) if len(digits) <= _DIGITS else _BEYOND


_DIGITS: Final = 40
_BEYOND: Final = 10**_DIGITS


def list_of(holder: dict[str, Any], name: str, where: str) -> list[Any]:
    """A list of an object, empty if it has none. Raises Unparsable if it is something else."""
    value = holder.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        msg = f"{name} of {where} is no list"
        raise Unparsable(msg)
    return value


def objects_of(holder: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    """As ``list_of``, of objects alone."""
    found = list_of(holder, name, where)
    for one in found:
        if not isinstance(one, dict):
            msg = f"{name} of {where} holds something that is no object"
            raise Unparsable(msg)
    return found


def _is_marked(item: object) -> bool:
    """Whether an item carries a ``flowmark.`` key or event name, whatever its shape otherwise."""
    if not isinstance(item, dict):
        return False
    event_name = item.get("eventName")
    if isinstance(event_name, str) and event_name.startswith(names.PREFIX):
        return True
    attributes = item.get("attributes")
    return isinstance(attributes, list) and any(
        isinstance(pair, dict)
        and isinstance(key := pair.get("key"), str)
        and key.startswith(names.PREFIX)
        for pair in attributes
    )


def _possible(body: bytes, signals: Signals) -> Signals:
    """The signals if any mark of theirs can be in a body; a letter may be escaped in JSON."""
    if b"\\u" in body or any(mark in body for mark in signals.raw_marks):
        return signals
    return NO_SIGNALS


def _is_signal(item: object, signals: Signals) -> bool:
    """Whether an item carries the mark of a signal."""
    attributes = item.get("attributes") if isinstance(item, dict) else None
    marks = signals.marks
    return isinstance(attributes, list) and any(
        isinstance(pair, dict) and isinstance(key := pair.get("key"), str) and key in marks
        for pair in attributes
    )


def _record(
    item: dict[str, Any], resource: Resource, shape: Names, budget: Budget, signals: Signals
) -> Span | LogRecord | Refused:
    try:
        budget.fields(sum(map(_length, map(item.get, _REPEATED))))
        return _log(item) if shape.is_log else _span(item, resource, budget, signals)
    except (_WrongShapeError, OverBudgetError) as error:
        return Refused(names.INVALID, str(error))


def _length(value: object) -> int:
    return len(value) if isinstance(value, list) else 0


def _span(item: dict[str, Any], resource: Resource, budget: Budget, signals: Signals) -> Span:
    return Span(
        _id(item, "traceId"),
        _id(item, "spanId"),
        _string(item, "name"),
        _unsigned(item, "startTimeUnixNano"),
        _unsigned(item, "endTimeUnixNano"),
        _failed(item),
        _attributes(item, "attributes", also=signals.reads),
        resource.service_name,
        _events(item, budget),
        _unsigned(item, "droppedAttributesCount"),
    )


def _log(item: dict[str, Any]) -> LogRecord:
    return LogRecord(
        _string(item, "eventName"),
        _id(item, "traceId"),
        _id(item, "spanId"),
        _unsigned(item, "timeUnixNano"),
        _attributes(item, "attributes"),
        _unsigned(item, "droppedAttributesCount"),
    )


def _events(item: dict[str, Any], budget: Budget) -> list[SpanEvent]:
    events = item.get("events")
    if events is None:
        return []
    if not isinstance(events, list):
        msg = "events is no list"
        raise _WrongShapeError(msg)
    found = []
    for event in events:
        if isinstance(event, dict) and (name := event.get("name")) in _READ_EVENTS:
            if name == names.ATTEMPT_OBSERVED:
                budget.annotated()
            else:
                budget.items(1)
            budget.fields(_length(event.get("attributes")))
            attributes = _attributes(event, "attributes", all_=True)
            found.append(SpanEvent(name, _unsigned(event, "timeUnixNano"), attributes))
    return found


def _failed(item: dict[str, Any]) -> bool:
    status = item.get("status")
    if status is None:
        return False
    if not isinstance(status, dict):
        msg = "status is no object"
        raise _WrongShapeError(msg)
    code = status.get("code", 0)
    if type(code) is int:  # enums are open: a code that a later OTLP adds is no error
        return code == _ERROR
    if isinstance(code, str) and code in _ERROR_CODES:
        return _ERROR_CODES[code]
    msg = f"status.code is {redact_text(str(code))[:24]!r}; set 0, 1 or 2"
    raise _WrongShapeError(msg)


def _id(item: dict[str, Any], name: str) -> bytes:
    """An id; text that is no hex stays as its bytes, whose number is then refused."""
    text = _string(item, name)
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode("utf-8", "surrogatepass")


def _string(item: dict[str, Any], name: str) -> str:
    value = item.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        msg = f"{name} is no string"
        raise _WrongShapeError(msg)
    return value


def _unsigned(item: dict[str, Any], name: str) -> int:
    value = item.get(name)
    if value is None:
        return 0
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{name} is no integer"
        raise _WrongShapeError(msg)
    if not 0 <= value < 1 << 64:
        msg = f"{name} is out of range; set an unsigned 64-bit integer"
        raise _WrongShapeError(msg)
    return value


def _attributes(
    holder: dict[str, Any],
    name: str,
    *,
    all_: bool = False,
    also: Collection[str] = (),
) -> dict[str, object]:
    """The attributes that folding reads, ``also`` these; of span events all."""
    pairs = holder.get(name)
    if pairs is None:
        return {}
    if not isinstance(pairs, list):
        msg = f"{name} is no list"
        raise _WrongShapeError(msg)
    found: dict[str, object] = {}
    for pair in pairs:
        if not isinstance(pair, dict):
            continue
        key = pair.get("key")
        if isinstance(key, str) and (
            all_ or key.startswith(names.PREFIX) or key == names.ERROR_TYPE or key in also
        ):
            found[key] = _value(pair.get("value"))
    return found


def _value(value: object) -> object:
    """An AnyValue; one of a wrong shape becomes something that no rule accepts."""
    if value is None:
        return None
    if not isinstance(value, dict):
        return Misshapen("value")
    for kind, read in _READERS.items():
        if kind in value and value[kind] is not None:
            return read(value[kind])
    return None


def _string_value(value: object) -> object:
    return value if isinstance(value, str) else Misshapen("stringValue")


def _bool_value(value: object) -> object:
    return value if isinstance(value, bool) else Misshapen("boolValue")


def _int_value(value: object) -> object:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return Misshapen("intValue")


def _double_value(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return Misshapen("doubleValue")
    try:
        return float(value)
    except (ValueError, OverflowError):
        return Misshapen("doubleValue")


def _bytes_value(value: object) -> object:
    try:
        return base64.b64decode(value) if isinstance(value, str) else Misshapen("bytesValue")
    except binascii.Error:
        return Misshapen("bytesValue")


def _array_value(value: object) -> object:
    """The one item of a list if it is a plain value; no rule and no signal looks into others."""
    items = value.get("values") if isinstance(value, dict) else None
    if not isinstance(items, list) or len(items) != 1 or not isinstance(items[0], dict):
        return []
    nested = "arrayValue" in items[0] or "kvlistValue" in items[0]
    return [] if nested else [_value(items[0])]


def _map_value(_: object) -> object:
    return {}


_READERS: Final[dict[str, Callable[[object], object]]] = {
    "stringValue": _string_value,
    "boolValue": _bool_value,
    "intValue": _int_value,
    "doubleValue": _double_value,
    "bytesValue": _bytes_value,
    "arrayValue": _array_value,
    "kvlistValue": _map_value,
}


def _resource(group: dict[str, Any]) -> Resource:
    """The service a group came from; what is of a wrong shape is unknown."""
    resource = group.get("resource")
    pairs = resource.get("attributes") if isinstance(resource, dict) else None
    found: dict[str, object] = {}
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, dict) and isinstance(key := pair.get("key"), str):
            found[key] = _value(pair.get("value"))
    return Resource(
        found.get(names.SERVICE_NAME),
        found.get(names.SERVICE_VERSION),
        found.get(names.SERVICE_INSTANCE_ID),
    )
