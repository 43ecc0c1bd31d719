"""A real browser for tests of pages: Debian's Chromium through Playwright, begun anew for each page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium (.ci/run does it)"
)


@contextmanager
def opened(address: str, *, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True, may_fail: bool = False) -> Iterator[Page]:  # fmt: skip
    """The page; what its script throws or logs as an error fails the test, unless its server is meant to go away (`may_fail`)."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
                java_script_enabled=script,
            )
            context.set_default_timeout(10_000)
            page = context.new_page()
            wrong: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
            page.goto(address)
            yield page
            assert may_fail or not wrong, wrong
        finally:
            browser.close()
