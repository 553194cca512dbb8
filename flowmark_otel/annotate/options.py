"""What an application may say of a run or an operation, and the attributes that say it.

A wrong value is a fault in words, never an exception: the application's work goes on, and the
events that would have carried the value are refused (contract, section 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypedDict

from flowmark_otel import names
from flowmark_otel.fold.redact import served_idempotency_key
from flowmark_otel.model import Attempt, Failure, RunRef
from flowmark_otel.validate import SELF_REFERENCE, BrokenRule, check_value, rule_of
from flowmark_otel.validate.rules import found

IdempotencyRule: TypeAlias = Callable[[str, str, str, str], str]
"""Workflow, run id, operation name and group id (empty without an attempt) → the key (B3)."""

MapError: TypeAlias = Callable[[Exception], "Failure | None"]
"""The exception that ended an operation → how the application names that failure."""


class OperationOptions(TypedDict, total=False):
    """The options of an operation.

    ``limit``: attempts allowed in total, from 1. ``deadline``: epoch milliseconds. ``timeout``:
    the cap of this attempt in milliseconds (B5). ``system``: the outside system that is touched.
    ``series``: the named series the attempt belongs to. ``idempotency_key``: the key, or a rule
    that computes it.
    """

    attempt: Attempt | None
    limit: int | None
    deadline: int | None
    timeout: int | None
    system: str | None
    series: str | None
    idempotency_key: str | IdempotencyRule | None
    map_error: MapError | None


@dataclass(frozen=True, slots=True)
class OperationDefinition:
    """An operation of a ``WorkflowDefinition``: its name, and options all its attempts share."""

    name: str
    options: OperationOptions = field(default_factory=OperationOptions)


class Fields(NamedTuple):
    """Attributes that passed their rules, and the faults of what did not."""

    attributes: dict[str, str | bool | int | float]
    faults: list[str]

    def check(self, key: str, value: object) -> None:
        """Add ``value`` under ``key`` if its rule accepts it; None counts as absent."""
        rule = rule_of(key)
        if value is None or rule is None:
            return
        try:
            self.attributes[key] = check_value(key, rule, plain(value))
        except BrokenRule as fault:
            self.faults.append(f"{key} {fault}")

    def attempt(self, value: object) -> None:
        """Add an attempt pair."""
        if isinstance(value, Attempt):
            self.check(names.ATTEMPT_GROUP_ID, value.group_id)
            self.check(names.ATTEMPT_NUMBER, value.number)
        elif value is not None:
            self.faults.append(f"attempt {found(value)}; set a flowmark_otel.Attempt")

    def retry_of(self, value: object) -> None:
        """Add a retry reference."""
        if isinstance(value, RunRef):
            self.check(names.RETRY_OF_WORKFLOW_NAME, value.workflow)
            self.check(names.RETRY_OF_RUN_ID, value.run_id)
        elif value is not None:
            self.faults.append(f"retry_of {found(value)}; set a flowmark_otel.RunRef")

    def idempotency_key(self, key: object) -> None:
        """Add the served form of a key; the raw one goes nowhere (B3)."""
        key = plain(key)
        if isinstance(key, str):
            self.check(names.ATTEMPT_IDEMPOTENCY_KEY, key)
            if names.ATTEMPT_IDEMPOTENCY_KEY in self.attributes:
                served = served_idempotency_key(key)
                self.attributes[names.ATTEMPT_IDEMPOTENCY_KEY] = served
        elif key is not None:
            self.faults.append(f"{names.ATTEMPT_IDEMPOTENCY_KEY} {found(key)}; set a string")

    def unknown(self, options: Iterable[str]) -> None:
        """Refuse options that there are not."""
        self.faults.extend(f"{name} is no option; leave it out" for name in options)


OPERATION_KEYS: Final = {
    "limit": names.ATTEMPT_LIMIT,
    "deadline": names.ATTEMPT_DEADLINE_MS,
    "timeout": names.ATTEMPT_TIMEOUT_MS,
    "system": names.ATTEMPT_SYSTEM_NAME,
    "series": names.ATTEMPT_SERIES_NAME,
}
"""The attribute of each option that is one attribute."""


def identity_fields(workflow: object, run_id: object) -> Fields:
    """The identity of a run."""
    fields = Fields({}, [])
    for key, value in ((names.WORKFLOW_NAME, workflow), (names.RUN_ID, run_id)):
        if value is None:
            fields.faults.append(f"{key} is None; set a string")
        fields.check(key, value)
    return fields


def run_fields(
    identity: Fields, retry_of: object, parent_run_id: object, correlation_id: object
) -> Fields:
    """What a run's span says from its start on."""
    fields = Fields({**identity.attributes}, [*identity.faults])
    fields.attributes[names.RECORD_TYPE] = names.RECORD_RUN
    fields.retry_of(retry_of)
    fields.check(names.PARENT_RUN_ID, parent_run_id)
    fields.check(names.CORRELATION_ID, correlation_id)
    own = tuple(identity.attributes.get(key) for key in names.IDENTITY_KEYS)
    if isinstance(retry_of, RunRef) and (retry_of.workflow, retry_of.run_id) == own:
        fields.faults.append(f"{names.RETRY_OF_RUN_ID} {SELF_REFERENCE}")
    return fields


def operation_fields(
    identity: Fields, name: object, options: Mapping[str, object], key: object
) -> Fields:
    """What an operation's span says from its start on; ``key`` is the computed idempotency key."""
    fields = Fields({**identity.attributes}, [*identity.faults])
    if name is None:
        fields.faults.append(f"{names.OPERATION_NAME} is None; set a string")
    fields.check(names.OPERATION_NAME, name)
    fields.attempt(options.get("attempt"))
    for option, attribute in OPERATION_KEYS.items():
        fields.check(attribute, options.get(option))
    fields.idempotency_key(key)
    return fields


def end_attributes(
    failure: tuple[object, object], outcome: object, result: object
) -> dict[str, object]:
    """What an end says, as given: folding judges it. ``failure`` is code and retryable."""
    code, retryable = failure
    given = {
        names.ERROR_CODE: code,
        names.ERROR_RETRYABLE: retryable,
        names.RUN_OUTCOME: outcome,
    }
    try:
        values = dict(result) if isinstance(result, Mapping) else {"*": result}
        given.update((f"{names.RUN_RESULT_PREFIX}{key}", value) for key, value in values.items())
    except Exception:  # noqa: BLE001 - a mapping of the application's, which folding refuses
        given[names.RUN_RESULT_PREFIX + "*"] = type(result).__name__
    return {key: plain(value) for key, value in given.items() if value is not None}


def plain(value: object) -> object:
    """A value of a class derived from text or numbers, an enumeration's, as what it is."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value


def shown(value: object) -> str:
    """A value as text, whatever it is."""
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an object that cannot say what it is
        return f"<{type(value).__name__}>"


def type_name(kind: type[BaseException]) -> str:
    """The error type of an exception as OpenTelemetry writes it: with its module, if any."""
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


_PLAIN: Final = frozenset((str, bool, int, float, type(None)))
