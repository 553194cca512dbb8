"""The registry in ``semconv/``, read into a model of the format that it is written in.

The format is the YAML model of OpenTelemetry's semantic conventions, as far as this registry uses
it. What the model does not know is refused, so that a slip is not taken for something optional.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field

FOLDER: Final = Path(__file__).parents[1] / "semconv"

Stability: TypeAlias = Literal["development", "alpha", "beta", "release_candidate", "stable"]
Scalar: TypeAlias = bool | int | float | str


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Member(_Model):
    """A value of an attribute with a closed set of them."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    value: str
    stability: Stability
    brief: str = ""


class Members(_Model):
    """The type of an attribute with a closed set of values."""

    members: Annotated[list[Member], Field(min_length=2)]


class Attribute(_Model):
    """Where an attribute is defined."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$")]
    type: Literal["string", "int", "double", "boolean", "template[any]"] | Members
    stability: Stability
    brief: str
    note: str = ""
    examples: list[Scalar] = []

    @property
    def members(self) -> list[Member]:
        """The values of a closed set; none of any other type."""
        return self.type.members if isinstance(self.type, Members) else []


class Conditionally(_Model):
    """When an attribute has to be there."""

    conditionally_required: str


class Recommended(_Model):
    """When an attribute should be there."""

    recommended: str


class Reference(_Model):
    """An attribute that a span, an event or a metric carries."""

    ref: str
    requirement_level: (
        Literal["required", "recommended", "opt_in"] | Conditionally | Recommended
    ) = "recommended"


class Definitions(_Model):
    """A group of attributes that are defined in it."""

    id: str
    type: Literal["attribute_group"]
    display_name: str
    brief: str
    attributes: list[Attribute]


class Spans(_Model):
    """What a span carries, by what it is."""

    id: str
    type: Literal["attribute_group"]
    stability: Stability
    display_name: str
    brief: str
    attributes: list[Reference]


class Event(_Model):
    """An event; a log record on the wire."""

    id: str
    type: Literal["event"]
    name: str
    stability: Stability
    brief: str
    attributes: list[Reference]


class Metric(_Model):
    """A metric."""

    id: str
    type: Literal["metric"]
    metric_name: str
    instrument: Literal["counter", "gauge", "histogram", "updowncounter"]
    unit: str
    stability: Stability
    brief: str
    note: str = ""
    attributes: list[Reference] = []


class Registry(_Model):
    """The groups of each file, in the order in which people read them."""

    attributes: list[Definitions]
    spans: list[Spans]
    events: list[Event]
    metrics: list[Metric]

    @property
    def defined(self) -> dict[str, Attribute]:
        """Every attribute by its key."""
        return {each.id: each for group in self.attributes for each in group.attributes}


def load(folder: Path = FOLDER) -> Registry:
    """The registry of a folder; pydantic's ValidationError names what is not of the format."""
    return Registry.model_validate({name: _groups(folder, name) for name in Registry.model_fields})


def _groups(folder: Path, name: str) -> object:
    """The groups of a file, as YAML has them; a file has nothing beside them."""
    text = (folder / f"{name}.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    if not isinstance(document, dict) or list(document) != ["groups"]:
        msg = f"{name}.yaml: must hold groups, and nothing beside them"
        raise ValueError(msg)
    groups: object = document["groups"]
    return groups
