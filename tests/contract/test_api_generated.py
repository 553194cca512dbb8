"""Questions that schemathesis makes from the OpenAPI document, put to a running backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from flowmark_otel.backend.api.endpoints import ENDPOINTS, PREFIX
from tests.conftest import BY_HAND, STORES
from tests.support.api import Api, told

if find_spec("schemathesis") is None:
    pytest.skip(f"needs schemathesis; install {BY_HAND['schemathesis']}", allow_module_level=True)

import schemathesis
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

EXAMPLES = 8  # of each request, store, and kind of question

# Not "right questions are answered": no schema says which text is a cursor, or that one time has
# to be before another.
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


class Documented(NamedTuple):
    """A backend that holds a story, its document as read from it, and names of what it holds."""

    api: Api
    schema: Any
    known: dict[str, str]


@pytest.fixture(scope="module", params=STORES)
def documented(
    request: pytest.FixtureRequest, new_store: Callable[[str], str]
) -> Iterator[Documented]:
    """A backend on each kind of store."""
    with told(new_store(request.param)) as api:
        schema = schemathesis.openapi.from_url(
            f"http://{api.running.http}{PREFIX}/openapi.json",
            headers={"authorization": api.running.read},
        )
        key = api.get("/runs", run_id="r1")["items"][0]["key"]
        yield Documented(api, schema, {"key": key, "trace_id": "0" * 31 + "1"})


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("path", [one.path for one in ENDPOINTS])
def test_every_answer_is_one_of_the_document(
    documented: Documented, path: str, mode: GenerationMode
) -> None:
    """Contract, section 5: right and wrong questions alike are answered as the document says."""
    operation = documented.schema[PREFIX + path]["GET"]
    named = {name: value for name, value in documented.known.items() if f"{{{name}}}" in path}
    # A question may be wrong in its path alone, so only right ones name what is there.
    fixed = {"path_parameters": named} if named and mode is GenerationMode.POSITIVE else {}

    @given(operation.as_strategy(mode, **fixed))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Case[Any]) -> None:
        authorization = {"authorization": documented.api.running.read}
        case.call_and_validate(headers=authorization, checks=CHECKS)

    ask()
