"""Headless Chromium for pages of the console: playwright, and Debian's package of Chromium."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright, ViewportSize

CHROMIUM: Final = shutil.which("chromium")
WINDOW: Final[ViewportSize] = {"width": 1280, "height": 800}
_ARGUMENTS: Final = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def launch(playwright: Playwright) -> Browser:
    """A browser that makes no requests of its own."""
    return playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=_ARGUMENTS)
