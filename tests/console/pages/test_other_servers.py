"""The pages of a server that refuses changes, and of one on Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from penstock.testing.platform import APACHE, Platform
from tests.console.pages.conftest import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

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
        page.goto(f"{url}/console/topics?q=payments")
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


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_a_cluster_of_apache_kafka_says_what_it_does_not_tell(
    shops: Callable[[str], Platform], contexts: Callable[[str], BrowserContext]
) -> None:
    url = shops(APACHE).registry_url.rstrip("/")
    watch = Watch(url)
    page = contexts("light").new_page()
    watch.add(page)
    page.goto(f"{url}/console")
    page.get_by_text("Apache Kafka").wait_for()
    page.get_by_text("Derived from the offsets of all partitions.").wait_for()
    page.get_by_text("out: not available").wait_for()
    page.get_by_text("controller: not available").wait_for()
    assert watch.problems == []
