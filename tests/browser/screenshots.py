"""The pictures of the README: ``python -m tests.browser.screenshots FOLDER`` (make screenshots)."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import FloatRect, ViewportSize, sync_playwright

from flowmark_otel.testing import FakeClock
from tests.browser.conftest import ARGUMENTS
from tests.support import day
from tests.support.loop import loop_thread
from tests.support.server import options, running

_RETRIED: Final = "/runs?workflow=crm.sync&min_attempts=5"
_EDGE: Final = 24
_SIZE: Final[ViewportSize] = {"width": 1280, "height": 860}


def main(folder: Path) -> None:
    """Write a picture of the overview of a simulated day, and one of a group of attempts."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        store = Path(temporary) / "day.db"
        with loop_thread() as loop:
            day.fill(store, loop)
        served = options(store, insecure_no_auth=True)
        with running(served, FakeClock(day.NOW)) as backend, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=list(ARGUMENTS)
            )
            page = browser.new_page(viewport=_SIZE, color_scheme="light")
            page.goto(f"http://{backend.http}/")
            page.screenshot(path=folder / "overview.png", full_page=True)
            page.goto(f"http://{backend.http}{_RETRIED}")
            page.locator("td.r-run a").first.click()
            box = page.locator("section.group").first.bounding_box()
            assert box is not None
            clip: FloatRect = {
                "x": box["x"] - _EDGE,
                "y": box["y"] + 1,  # below its rule
                "width": box["width"] + 2 * _EDGE,
                "height": box["height"] + _EDGE,
            }
            page.screenshot(path=folder / "run.png", full_page=True, clip=clip)
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
