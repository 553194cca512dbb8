"""A real browser against a real server that real spans were sent to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, sync_playwright

from tests.browser import story
from tests.support.server import Running, options, running

ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="package")  # its loop must not outlive these tests
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(ARGUMENTS)
        )
        yield started
        started.close()


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A backend with the stories of ``tests.browser.story``, sent by the stock exporter."""
    with running(options(tmp_path_factory.mktemp("browser") / "store.db")) as backend:
        story.tell(backend)
        yield backend


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Running]:
    """A backend that nothing was sent to."""
    with running(options(tmp_path / "store.db")) as backend:
        yield backend


@dataclass
class Visitor:
    """Somebody with a browser; ``complaints`` is whatever the browser had to say."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Go to a path of the server."""
        self.page.goto(f"{self.base}{path}")

    def sign_in(self, key: str) -> None:
        """Sign in with a read key, which leads to the runs."""
        self.open("/login?next=%2Fruns")
        self.page.get_by_label("Read key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.base}/p/*/runs")


@contextmanager
def visitor(
    browser: Browser,
    backend: Running,
    *,
    scripts: bool = True,
    scheme: Literal["light", "dark"] = "light",
    width: int = 1280,
    zone: str | None = None,
) -> Iterator[Visitor]:
    """A visitor of a backend; console messages, errors and dialogs are kept as complaints."""
    context = browser.new_context(
        java_script_enabled=scripts,
        color_scheme=scheme,
        viewport={"width": width, "height": 800},
        timezone_id=zone,
    )
    page = context.new_page()
    found = Visitor(page, f"http://{backend.http}")
    page.set_default_timeout(10_000)

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            found.complaints.append(f"console: {message.text}")

    def asked(dialog: Dialog) -> None:
        found.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", said)
    page.on("pageerror", lambda error: found.complaints.append(f"error: {error}"))
    page.on("dialog", asked)
    try:
        yield found
    finally:
        context.close()
