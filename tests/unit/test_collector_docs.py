"""What ``collector/README.md`` tells is what the code has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flowmark_otel import names
from flowmark_otel.collector.config.components import ALIASES, TYPES
from flowmark_otel.collector.config.loading import load, plan_of
from flowmark_otel.collector.config.options import classes
from flowmark_otel.collector.config.service import PipelineOptions, ServiceOptions
from flowmark_otel.collector.config.values import ERROR_NAMES
from flowmark_otel.listen.prometheus import label, prometheus_name
from tests.support.collector_files import ENVIRONMENT, SAMPLE, faults

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "collector"
README: Final = (FOLDER / "README.md").read_text("utf-8")
FILE: Final = FOLDER / "flowmark-otel-collect.yaml"


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and all sections in it."""
    yield model
    for field in model.model_fields.values():
        for inner in sections(field):
            yield from models(inner)


def sections(field: FieldInfo) -> list[type[BaseModel]]:
    """The models that a field may hold."""
    return [each for each in classes(field) if issubclass(each, BaseModel)]


def test_every_key_is_told() -> None:
    """Section 9: whoever writes a file finds every key in the README."""
    roots: list[type[BaseModel]] = [ServiceOptions, PipelineOptions]
    for kinds in TYPES.values():
        roots += kinds.values()
    found = {key for root in roots for model in models(root) for key in model.model_fields}
    assert {key for key in found if not re.search(rf"\b{key}\b", README)} == set()


def test_every_component_and_error_name_is_told() -> None:
    """Section 9: types, their other names, and the names that retry_on takes."""
    types = {each for kinds in TYPES.values() for each in kinds}
    aliases = {each for kinds in ALIASES.values() for each in kinds}
    for name in types | aliases | set(ERROR_NAMES):
        assert f"`{name}`" in README, name


def test_every_metric_is_told_with_its_labels() -> None:
    """Contract, section 10: the table of the README is the table of the code."""
    for metric in names.COLLECTOR_METRICS:
        assert prometheus_name(metric) in README, metric.name
        for each in metric.attributes:
            assert label(each) in README


def test_the_file_to_start_from_is_the_sample_with_its_values() -> None:
    """Section 9: the file is loaded as it is, and has the policy of the contract's sample."""
    plan, sample = load(FILE, ENVIRONMENT), plan_of(SAMPLE, ENVIRONMENT)
    assert plan.connectors == sample.connectors
    assert plan.exporters["flowmark"] == sample.exporters["flowmark"]
    assert plan.exporters["file/letters"] == sample.exporters["file/letters"]
    assert (plan.receivers, plan.telemetry) == (sample.receivers, sample.telemetry)
    assert plan.unused == ()


@pytest.mark.parametrize("acknowledge", ["end_to_end", "on_spool"])
def test_what_is_put_in_by_taking_signs_away_fits(acknowledge: str) -> None:
    """Section 9: the lines that are commented out are right too, under both promises."""
    text = FILE.read_text("utf-8")
    assert text.count("# - ") == text.count("  # otlp_http") == 1
    text = text.replace("# - ", "- ").replace("  # otlp_http", "  otlp_http")
    text = text.replace("acknowledge: end_to_end", f"acknowledge: {acknowledge}")
    assert faults(text) == []
    plan = plan_of(text, ENVIRONMENT)
    assert (
        plan.exporters["otlp_http/tracing"]
        == plan_of(SAMPLE, ENVIRONMENT).exporters["otlp_http/tracing"]
    )


def test_the_file_of_the_documentation_is_a_plan() -> None:
    """Section 9: the configuration that docs/collector.md shows is accepted."""
    (block,) = re.findall(
        r"^```yaml\n(.*?)^```",
        (ROOT / "docs" / "collector.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert faults(block, {}) == []


def test_the_readme_names_every_file() -> None:
    """Issue 10: collector/README.md has a word on each file beside it."""
    for path in FOLDER.iterdir():
        assert path.name == "README.md" or f"`{path.name}" in README
