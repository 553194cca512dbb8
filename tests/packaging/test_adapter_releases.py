"""Adapters with the oldest release of each library: the same tests as with the newest (E3)."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
UNREACHABLE: Final = ("connection", "resolve", "timed out", "no matching distribution")

OLDEST: Final = {
    "aiohttp_retry": ("aiohttp-retry==2.9.0",),
    "anthropic": ("anthropic==0.50.0",),
    "backoff": ("backoff==2.0.0",),
    "botocore": ("botocore==1.31.63",),
    "celery": (
        *("celery==5.3.0", "kombu==5.3.0", "billiard==4.1.0", "vine==5.0.0", "amqp==5.1.1"),
    ),
    "dramatiq": ("dramatiq==1.14.0",),
    "google_api_core": ("google-api-core==2.17.0", "grpcio-status==1.85.3"),
    "httpx": ("httpcore==1.0.0", "httpx==0.27.0"),
    "langchain": (
        "langchain-core==0.3.0",
        "packaging==24.1",
        "tenacity==8.2.0",
    ),
    "openai": ("openai==1.76.0", "tqdm==4.67.1"),
    "tenacity": ("tenacity==8.2.0",),
    "stamina": ("stamina==23.1.0", "tenacity==8.2.0"),
    "urllib3": ("urllib3==2.0.0", "requests==2.31.0"),
}
"""The releases that each adapter's tests run against beside those of constraints.txt."""

pytestmark = pytest.mark.timeout(180)  # a release is installed, and tests run with it


@pytest.mark.parametrize("name", OLDEST)
def test_the_oldest_release(name: str, tmp_path: Path) -> None:
    """E3: an adapter works with the oldest release that it says it does."""
    folder = tmp_path / "oldest"
    install = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--target", str(folder), *OLDEST[name]),
    ]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and any(word in done.stderr.lower() for word in UNREACHABLE):
        pytest.skip("the package index cannot be reached; the release is installed from it")
    assert done.returncode == 0, done.stderr
    tests = ROOT / "tests" / "unit" / f"test_adapters_{name}.py"
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("name", OLDEST)
def test_the_oldest_release_is_the_one_that_is_required(name: str) -> None:
    """E3: what is tested is what the adapter requires."""
    module = importlib.import_module(f"flowmark_otel.adapters.{name}")
    [adapter] = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__ and hasattr(each, "patch")
    ]
    assert getattr(adapter, "requirement").replace(" >= ", "==") == OLDEST[name][0]  # noqa: B009
