"""How settings are declared and resolved: arguments, then the environment, then defaults.

A settings class is a frozen data class whose fields are made by ``setting``. Classes can be
constructed directly too, then their author vouches for the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from flowmark_otel.errors import ConfigurationError

T = TypeVar("T")
SettingsT = TypeVar("SettingsT", bound="Settings")

Parse = Callable[[object], T]
"""Turns text, or a value that has the type already, into the setting; ValueError says the rule."""

_SETTING: Final = "flowmark.setting"


class Setting(NamedTuple):
    """What is declared of a setting beside its default.

    ``variable``: an environment variable that sets it where the one of its own name does not.
    """

    parse: Parse[Any]
    help: str
    variable: str = ""


class Settings(Protocol):
    """What ``resolve`` needs of a settings class.

    ``prefix`` and the field's name in upper case make the environment name. ``removed`` maps
    names (of fields, in lower case) that existed once to a sentence on what to use instead.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    prefix: ClassVar[str]
    removed: ClassVar[Mapping[str, str]]

    def faults(self) -> list[str]:
        """Faults that lie between settings, each one a sentence."""
        ...


def setting(
    parse: Parse[T], default: T, description: str, *, secret: bool = False, variable: str = ""
) -> T:
    """Declare a field of a settings class; a secret one is not shown in its ``repr``."""
    declared_as = Setting(parse, description, variable)
    return field(default=default, repr=not secret, metadata={_SETTING: declared_as})


def declared(kind: type[Settings]) -> dict[str, Setting]:
    """The settings of a class by field name, in order: for flags and for documentation."""
    return {item.name: item.metadata[_SETTING] for item in fields(kind)}


def environment_name(kind: type[Settings], name: str) -> str:
    """The environment variable that sets a field."""
    return f"{kind.prefix}{name.upper()}"


def gather(
    kind: type[Settings], arguments: Mapping[str, object], environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """What was set of a settings class, parsed, and a fault for each source that is wrong.

    An argument that is None and a variable that is empty count as absent. The faults are by
    field name; where the name is no field, by the name as it was given.
    """
    settings = declared(kind)
    given = {name: value for name, value in arguments.items() if value is not None}
    found = [
        *((name, value, name) for name, value in given.items()),
        *(
            (variable.removeprefix(kind.prefix).lower(), value, variable)
            for variable, value in environ.items()
            if variable.startswith(kind.prefix) and value
        ),
        *(
            (name, environ[one.variable], one.variable)
            for name, one in settings.items()
            if environ.get(one.variable)
        ),
    ]
    faults: dict[str, str] = {}
    values: dict[str, Any] = {}
    for name, value, source in found:
        if name in kind.removed:
            faults[source] = f"{source} was removed: {kind.removed[name]}"
        elif name not in settings:
            faults[source] = f"{source} is no setting"
        elif name not in values and name not in faults:
            try:
                values[name] = settings[name].parse(value)
            except ValueError as error:
                faults[name] = f"{source}: {error}"
            except Exception as error:  # noqa: BLE001 - whatever an argument does when it is read
                kind_of = type(value).__name__
                faults[name] = f"{source}: a {kind_of} that raised {type(error).__name__} when read"
    return values, faults


def resolve(
    kind: type[SettingsT], arguments: Mapping[str, object], environ: Mapping[str, str]
) -> SettingsT:
    """Settings from arguments, then the environment, then the defaults.

    Raises ConfigurationError with every fault, each naming where its value came from.
    """
    values, wrong = gather(kind, arguments, environ)
    faults = list(wrong.values())
    if not faults:
        options = kind(**values)
        faults = options.faults()
    if faults:
        raise ConfigurationError(faults)
    return options
