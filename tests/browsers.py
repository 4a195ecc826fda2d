"""A real Chromium for the tests of pages; tests that need one are skipped, with the reason, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parents[1] / "player/node_modules/axe-core/axe.min.js"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class Opened:
    """A page in the browser, with what it asked of the network and what went wrong in it."""

    def __init__(self, browser: Browser, folder: Path, **settings: Any) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **settings})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self._folder = folder
        self._shown = 0

    def show(self, html: str, hash_: str = "") -> Page:
        """Open a page from a file of its own, so that no hash of the one before is taken for a step in it."""
        self._shown += 1
        self._file.write_text(html, encoding="utf-8")
        self.page.goto(self._address(hash_))
        return self.page

    def is_at(self, hash_: str) -> None:
        """Wait until this stands behind the # of the address, and fail if that does not come."""
        from playwright.sync_api import expect

        expect(self.page).to_have_url(self._address(hash_))

    @property
    def _file(self) -> Path:
        return self._folder / f"page{self._shown}.html"

    def _address(self, hash_: str) -> str:
        return f"{self._file.as_uri()}#{hash_}" if hash_ else self._file.as_uri()
