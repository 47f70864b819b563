"""Live pages: records as they arrive, a restart of the server, many tabs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from tests.console.pages.conftest import BOTH_SERVERS, OpenPage, Watch, create_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import BrowserContext, Page

    from penstock.testing.platform import Platform

pytestmark = pytest.mark.slow
SERVERS = BOTH_SERVERS
TABS = 20


class Writer:
    """Writes numbered records to a topic."""

    def __init__(self, url: str, topic: str) -> None:
        self.topic = topic
        self._http = httpx.Client(base_url=url, timeout=30)
        self._written = 0
        create_topic(self._http, topic)

    def write(self, count: int) -> None:
        numbers = range(self._written, self._written + count)
        records = [{"key": f"number-{number}", "value": number} for number in numbers]
        self._http.post(
            f"/topics/{self.topic}/produce", json={"records": records}
        ).raise_for_status()
        self._written += count

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def writer(console: Platform, request: pytest.FixtureRequest) -> Iterator[Writer]:
    name = request.node.name.replace("[", "-").rstrip("]")
    writer = Writer(console.registry_url, f"live-{name}"[:100])
    yield writer
    writer.close()


def wait_live(page: Page) -> None:
    page.locator(".connection.live").wait_for()
    page.wait_for_timeout(500)  # until the server has read the end of the topic


def test_records_appear_as_they_are_written_and_pausing_counts_them(
    open_page: OpenPage, writer: Writer
) -> None:
    page = open_page(f"/topics/{writer.topic}/live")
    wait_live(page)
    writer.write(3)
    page.locator(".vrow", has_text="number-2").wait_for()
    assert page.locator(".vrow").count() == 3
    page.get_by_role("button", name="Pause").click()
    writer.write(2)
    page.get_by_role("button", name="Resume (2 new)").click()
    page.locator(".vrow", has_text="number-4").wait_for()
    assert "number-4" in page.locator(".vrow").first.inner_text()
    assert page.locator(".vrow").count() == 5


def test_tabs_beyond_the_connections_of_a_browser_are_all_live(
    open_page: OpenPage, writer: Writer
) -> None:
    pages = [open_page(f"/topics/{writer.topic}/live") for _ in range(TABS)]
    for page in pages:
        wait_live(page)
    writer.write(4)
    for page in pages:
        page.locator(".vrow", has_text="number-3").wait_for()


class RestartedHttp:
    """An HTTP process that comes back to its port."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._port = 0
        self.start()

    def start(self) -> None:
        self.process = HttpProcess()
        self.process.configure(HttpOptions(self._bootstrap, http_port=self._port))
        self.url = str(self.process.wait_ready()["http"]).rstrip("/")
        self._port = int(self.url.rpartition(":")[2])


def test_a_page_goes_on_when_the_server_was_restarted_under_it(
    console: Platform, contexts: Callable[[str], BrowserContext], writer: Writer
) -> None:
    server = RestartedHttp(console.bootstrap)
    watch = Watch(server.url)
    watch.expected += ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"]
    watch.expected += ["WebSocket connection", "503"]
    try:
        tail, topics = (contexts("light").new_page() for _ in range(2))
        for page, path in ((tail, f"/topics/{writer.topic}/live"), (topics, "/topics?q=live-")):
            watch.add(page)
            page.goto(f"{server.url}/console{path}")
        tail.bring_to_front()
        wait_live(tail)
        writer.write(2)
        tail.locator(".vrow", has_text="number-1").wait_for()
        topics.bring_to_front()
        topics.locator(".vrow").first.wait_for()
        server.process.kill()
        topics.locator(".stale", has_text="Not updated for").wait_for()
        assert topics.locator(".vrow").count() > 0
        writer.write(2)  # while the page is without a server
        server.start()
        topics.locator(".stale").wait_for(state="detached")
        tail.bring_to_front()
        tail.locator(".vrow", has_text="number-3").wait_for()
        assert tail.locator(".vrow").count() == 4
    finally:
        server.process.stop()
    assert watch.problems == []
