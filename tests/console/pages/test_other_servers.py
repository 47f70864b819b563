"""The pages of a server that refuses changes, and of one on Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples.console_shop import write_shop
from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from penstock.testing.platform import APACHE, Platform
from tests.console.pages.conftest import Watch
from tests.console.pages.test_every_page import PAGES, check_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.slow


def test_a_server_that_refuses_changes_shows_no_button_for_one(
    console: Platform, contexts: Callable[[str], BrowserContext]
) -> None:
    process = HttpProcess()
    process.configure(HttpOptions(console.bootstrap, http_port=0, read_only=True))
    url = str(process.wait_ready()["http"]).rstrip("/")
    watch = Watch(url)
    try:
        page = contexts("light").new_page()
        watch.add(page)
        page.goto(f"{url}/console/topics")
        page.get_by_text("Read only").wait_for()
        page.locator(".vrow", has_text="payments").click()
        page.locator(".vrow", has_text="o-00749").click()
        page.locator(".detail pre").wait_for()
        for name in ("Create topic", "Delete topic", "Produce again"):
            assert page.get_by_text(name).locator("visible=true").count() == 0
        assert page.get_by_role("link", name="Produce", exact=True).count() == 0
    finally:
        process.stop()
    assert watch.problems == []


@pytest.fixture
def apache() -> Iterator[Platform]:
    platform = Platform("pages", kafka=APACHE).start()
    try:
        write_shop(platform.bootstrap, platform.registry_url)
        yield platform
    finally:
        platform.stop()


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_every_page_shows_a_cluster_of_apache_kafka(
    apache: Platform, contexts: Callable[[str], BrowserContext]
) -> None:
    url = apache.registry_url.rstrip("/")
    watch = Watch(url)
    for theme in ("light", "dark"):
        page = contexts(theme).new_page()
        watch.add(page)
        for path, text in PAGES:
            page.goto(f"{url}/console{path}")
            page.locator("main").get_by_text(text).first.wait_for()
            check_page(page)
    page.goto(f"{url}/console")
    page.get_by_text("Apache Kafka").wait_for()
    page.get_by_text("Derived from the offsets of all partitions.").wait_for()
    page.get_by_text("out: not available").wait_for()
    assert watch.problems == []
