"""Pages in headless Chromium. Every test fails on an error of the page that it did not expect.

The platform is one for all tests here, with the data of `examples.console_shop`; tests that change
something use topics and groups of their own, so their order does not matter. The tests of a module
with `SERVERS = BOTH_SERVERS` run on Apache Kafka too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import httpx
import pytest

from examples.console_shop import write_shop
from penstock.client.pipeline_reports import TOPIC, PipelineReport
from penstock.testing.platform import APACHE, Platform
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
PENSTOCK = "penstock"
BOTH_SERVERS = (
    PENSTOCK,
    pytest.param(APACHE, marks=[pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(300)]),
)
QUERY = PipelineReport("q-1", "run-1", 1_700_000_000_000, "orders-by-city", batch=7, lag=12)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    servers = getattr(metafunc.module, "SERVERS", None)
    if servers is not None and "console" in metafunc.fixturenames:
        metafunc.parametrize("console", servers, indirect=True, scope="module")


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
def shops() -> Iterator[Callable[[str], Platform]]:
    """Platforms with a shop's data and a pipeline, by server; each is started once."""
    made: dict[str, Platform] = {}

    def shop(server: str) -> Platform:
        if server not in made:
            kafka = APACHE if server == APACHE else None
            made[server] = platform = Platform("pages", kafka=kafka).start()
            write_shop(platform.bootstrap, platform.registry_url)
            report_pipeline(platform.registry_url, QUERY)
        return made[server]

    yield shop
    for each in made.values():
        each.stop()


@pytest.fixture(scope="module")
def console(request: pytest.FixtureRequest, shops: Callable[[str], Platform]) -> Platform:
    """The platform of a test."""
    return shops(getattr(request, "param", PENSTOCK))


def create_topic(http: httpx.Client, name: str, partitions: int = 1) -> None:
    """Create a topic if it does not exist: on the second server of a run it may."""
    answer = http.post("/topics", json={"name": name, "partitions": partitions})
    assert answer.status_code in (201, 409), answer.text


def report_pipeline(url: str, report: PipelineReport) -> None:
    """Write a report as a listener of Spark does."""
    key, value = report.record()
    body = {"key": key.decode(), "value": json.loads(value)}
    with httpx.Client(base_url=url, timeout=30) as http:
        create_topic(http, TOPIC)
        http.post(f"/topics/{TOPIC}/produce", json=body).raise_for_status()


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
