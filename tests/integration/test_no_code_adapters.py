"""Adapters without code: programs that retry on loopback, under ``opentelemetry-instrument``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.answers import Answering, Reply, answering
from tests.support.programs import INSTRUMENT, NOT_LOADED, Recorded, environment, run
from tests.support.serving import Serving

DISABLED: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"

TENACITY: Final = """
import os
import requests
from tenacity import retry, stop_after_attempt

@retry(stop=stop_after_attempt(4))
def push_to_crm():
    requests.get(os.environ["CRM"], timeout=10).raise_for_status()

push_to_crm()
"""

STAMINA: Final = """
import os
import requests
import stamina

@stamina.retry(on=requests.HTTPError, wait_initial=0, wait_jitter=0)
def push_to_crm():
    requests.get(os.environ["CRM"], timeout=10).raise_for_status()

push_to_crm()
"""

BACKOFF: Final = """
import os
import backoff
import requests

@backoff.on_exception(backoff.constant, requests.HTTPError, interval=0, jitter=None)
def push_to_crm():
    requests.get(os.environ["CRM"], timeout=10).raise_for_status()

push_to_crm()
"""

BOTOCORE: Final = """
import os
import botocore.session
from botocore.config import Config

store = botocore.session.Session().create_client(
    "s3", region_name="eu-north-1", endpoint_url=os.environ["CRM"],
    aws_access_key_id="a", aws_secret_access_key="b",
    config=Config(retries={"mode": "standard"}, s3={"addressing_style": "path"}),
)
store.get_object(Bucket="b", Key="k")
"""

HEADERS: Final = "OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_CLIENT_REQUEST"

REQUESTS: Final = """
import os
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

with requests.Session() as session:
    policy = Retry(3, status_forcelist=[503])
    session.mount("http://", HTTPAdapter(max_retries=policy))
    session.get(os.environ["CRM"], timeout=10).raise_for_status()
"""

OPENAI: Final = """
import os
import openai

openai.OpenAI(api_key="k", base_url=os.environ["CRM"], max_retries=3).post("/x", cast_to=str)
"""

AIOHTTP: Final = """
import asyncio
import os
from aiohttp_retry import ExponentialRetry, RetryClient

async def main():
    async with RetryClient(retry_options=ExponentialRetry(3, start_timeout=0)) as client:
        async with client.get(os.environ["CRM"]):
            pass

asyncio.run(main())
"""

FAILED: Final = "requests.exceptions.HTTPError"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A backend with keys."""
    with Serving(tmp_path / "s.db") as found:
        yield found


@pytest.fixture
def crm() -> Iterator[Answering]:
    """A service that is unavailable twice."""
    with answering(Reply(status=503), Reply(status=503), Reply()) as found:
        yield found


def stock_exporter(serving: Serving) -> dict[str, str]:
    """The settings that send the same spans to the same backend by the stock exporter."""
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": serving.endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{serving.keys[0]}",
    }


def quiet(**more: str) -> dict[str, str]:
    """No exporter but what is asked for."""
    none = dict.fromkeys(
        ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"), "none"
    )
    return {**none, **more}


@pytest.mark.parametrize(
    ("program", "exporter", "signals"),
    [
        pytest.param(TENACITY, "none", "safe", id="tenacity"),
        pytest.param(TENACITY, "none", "none", id="tenacity-no signals"),
        pytest.param(TENACITY, "stock", "safe", id="tenacity-stock exporter"),
        pytest.param(BACKOFF, "stock", "safe", id="backoff-stock exporter"),
        pytest.param(STAMINA, "stock", "safe", id="stamina-stock exporter"),
    ],
)
def test_a_try_counts_once_in_every_combination(
    serving: Serving, crm: Answering, tmp_path: Path, program: str, exporter: str, signals: str
) -> None:
    """E3, issue 8: three tries are three attempts, with nothing but an install.

    With the requests of the tries instrumented too; with and without signals read in the SDK;
    with the same spans sent to a backend that reads signals by the stock exporter, or not.
    """
    more = stock_exporter(serving) if exporter == "stock" else {}
    env = environment(
        tmp_path, serving, **quiet(**more, CRM=crm.endpoint, FLOWMARK_SIGNALS=signals)
    )
    run(tmp_path, program, env, INSTRUMENT)
    recorded = Recorded(serving)
    [found] = recorded.runs()
    attempts = [each[0::2] for each in recorded.attempts(found)]
    assert [(number, code) for _, number, code in attempts] == [(1, FAILED), (2, FAILED), (3, None)]
    assert {name for name, _, _ in attempts} == {"__main__.push_to_crm"}
    assert recorded.operations(found) == [("__main__.push_to_crm", "failed")] * 2 + [
        ("__main__.push_to_crm", "completed")
    ]


def test_a_send_of_botocore_counts_once(serving: Serving, crm: Answering, tmp_path: Path) -> None:
    """E3, issue 8: beside botocore's instrumentation, with the headers that a signal reads kept."""
    told = stock_exporter(serving) | {"CRM": crm.endpoint, HEADERS: "amz-sdk-.*"}
    env = environment(tmp_path, serving, **quiet(**told))
    run(tmp_path, BOTOCORE, env, INSTRUMENT)
    recorded = Recorded(serving)
    [found] = recorded.runs()
    group = crm.received[0].headers["amz-sdk-invocation-id"]
    assert recorded.attempts(found) == [
        ("S3.GetObject", group, 1, "failed", "503"),
        ("S3.GetObject", group, 2, "failed", "503"),
        ("S3.GetObject", group, 3, "completed", None),
    ]


@pytest.mark.parametrize(
    ("program", "name"),
    [
        pytest.param(REQUESTS, "GET 127.0.0.1", id="requests"),
        pytest.param(OPENAI, "openai POST /x", id="openai"),
        pytest.param(AIOHTTP, "GET 127.0.0.1", id="aiohttp-retry"),
    ],
)
def test_requests_count_once_by_our_exporter_and_the_stock_one(
    serving: Serving, crm: Answering, tmp_path: Path, program: str, name: str
) -> None:
    """E3, issue 8: so do the tries of clients, beside the instrumentations of HTTP."""
    env = environment(tmp_path, serving, **quiet(**stock_exporter(serving), CRM=crm.endpoint))
    run(tmp_path, program, env, INSTRUMENT)
    recorded = Recorded(serving)
    [found] = recorded.runs()
    attempts = [each[0::2] for each in recorded.attempts(found)]
    assert [(number, code) for _, number, code in attempts] == [(1, "503"), (2, "503"), (3, None)]
    assert {each for each, _, _ in attempts} == {name}
    failed = [(name, "failed")] * 2
    assert recorded.operations(found) == [*failed, (name, "completed")]


NEVER_LOADED: Final = (
    "aiohttp_retry",
    "anthropic",
    "backoff",
    "langchain_core",
    "openai",
    "stamina",
)


def test_libraries_that_are_not_used_are_not_loaded(serving: Serving, tmp_path: Path) -> None:
    """D2: an adapter waits for the application to import its library, which may take seconds."""
    env = environment(tmp_path, serving, **quiet())
    look = f"import sys; print([each for each in {NEVER_LOADED} if each in sys.modules])"
    assert run(tmp_path, look, env, INSTRUMENT).stdout.splitlines()[-1] == "[]"


LOOK: Final = """
import tenacity
print(tenacity.BaseRetrying.iter.__code__.co_filename)
"""


@pytest.mark.parametrize("configured", [True, False])
def test_each_can_be_disabled_and_idles_where_nothing_is_configured(
    serving: Serving, tmp_path: Path, *, configured: bool
) -> None:
    """D2, E3: by the standard variable the library is left as it is; so by an install alone."""
    off = f"{NOT_LOADED[DISABLED]},flowmark_tenacity"
    more = {DISABLED: off} if configured else {}
    env = environment(tmp_path, serving if configured else None, **quiet(**more))
    printed = run(tmp_path, LOOK, env, INSTRUMENT).stdout
    assert printed.rstrip().endswith("tenacity/__init__.py")
