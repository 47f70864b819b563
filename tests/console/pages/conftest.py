"""Pages in headless Chromium. Every test fails on an error of the page that it did not expect.

The platform is one for all tests here, with the data of `examples.console_shop`; tests that change
something use topics and groups of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import pytest

from examples.console_shop import write_shop
from penstock.testing.platform import Platform
from tests.support.chromium import CHROMIUM, WINDOW, launch

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

WAIT_MS = 30_000
CANARY = "<img src=x onerror=window.PWNED=1>"
REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`));
"""

OpenPage: TypeAlias = Callable[..., "Page"]


class Watch:
    """Collects what no page may do; `expected` are parts of console errors that a test causes."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        self.problems: list[str] = []
        self.expected: list[str] = []

    def on_error(self, error: object) -> None:
        self.problems.append(f"page error: {error}")

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(each in message.text for each in self.expected):
            self.problems.append(f"console error: {message.text} ({message.location['url']})")

    def on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self._host:
            self.problems.append(f"request to another host: {request.url}")

    def add(self, page: Page) -> None:
        page.on("pageerror", self.on_error)
        page.on("console", self.on_console)
        page.on("request", self.on_request)


@pytest.fixture(scope="session")
def console() -> Iterator[Platform]:
    """A platform with a shop's data."""
    platform = Platform("pages").start()
    try:
        write_shop(platform.bootstrap, platform.registry_url)
        yield platform
    finally:
        platform.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with its module: while it runs, no test of this process can start an event loop."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: make tools")
    with playwright.sync_playwright() as running:
        browser = launch(running)
        yield browser
        browser.close()


@pytest.fixture
def watch(console: Platform) -> Iterator[Watch]:
    watch = Watch(console.registry_url)
    yield watch
    assert watch.problems == []


@pytest.fixture
def contexts(browser: Browser) -> Iterator[Callable[[str], BrowserContext]]:
    made: dict[str, Any] = {}

    def context(theme: str) -> BrowserContext:
        if theme not in made:
            made[theme] = browser.new_context(color_scheme=theme, viewport=WINDOW)  # type: ignore[arg-type]  # literals there
            made[theme].add_init_script(REPORT_VIOLATIONS)
            made[theme].set_default_timeout(WAIT_MS)
        return made[theme]  # type: ignore[no-any-return]  # playwright may be missing

    yield context
    for each in made.values():
        each.close()


@pytest.fixture
def open_page(
    console: Platform, watch: Watch, contexts: Callable[[str], BrowserContext]
) -> OpenPage:
    """Opens a place of the console: `open_page("/topics", theme="dark")`."""

    def open_place(path: str = "", theme: str = "light") -> Page:
        page = contexts(theme).new_page()
        watch.add(page)
        page.goto(f"{console.registry_url.rstrip('/')}/console{path}")
        return page

    return open_place
