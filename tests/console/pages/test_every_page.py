"""Every page in both themes: it shows its data, and axe finds no violation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.pages.conftest import BOTH_SERVERS
from tests.support.page_measures import NODES_MAX, node_count

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.console.pages.conftest import OpenPage

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")

pytestmark = pytest.mark.slow

SERVERS = BOTH_SERVERS
# An address and a text that only its data can show.
PAGES = [
    ("", "billing"),
    ("/topics", "customers"),
    ("/topics/orders/records", "customer-"),
    ("/topics/orders/records?partition=1&open=1%3A20", "schema id 3"),
    ("/topics/orders/records?partition=1&open=1%3A20&tab=bytes", "payload"),
    ("/topics/orders/records?partition=1&open=1%3A20&tab=copy", "penstock consume"),
    ("/topics/orders/live", "penstock produce orders"),
    ("/topics/orders/partitions", "average one"),
    ("/topics/orders/config", "cleanup.policy"),
    ("/topics/orders/groups", "billing"),
    ("/topics/orders/produce", "order_id"),
    ("/groups", "ledger"),
    ("/groups/billing", "classic protocol"),
    ("/groups/billing/reset?to=earliest", "records read again"),
    ("/schemas", "orders-value"),
    ("/schemas/orders-value?from=1&to=3", "Upgrade order"),
    ("/schemas/orders-value/propose", "Starts as version 3"),
    ("/quarantine", "unknown_schema"),
    ("/quarantine/orders", "32767"),
    ("/sql?q=select%20count(*)%20as%20n%20from%20payments", "1 row in"),
    ("/pipelines", "orders-by-city"),
    ("/nothing", "There is no such page"),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("path", "text"), PAGES)
def test_a_page_shows_its_data_and_axe_finds_nothing(
    open_page: OpenPage, path: str, text: str, theme: str
) -> None:
    page = open_page(path, theme)
    page.locator("main").get_by_text(text).first.wait_for()
    check_page(page)


def check_page(page: Page) -> None:
    """No violation, few elements, and nothing wider than the window."""
    page.locator(".state.loading").first.wait_for(state="detached")
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert node_count(page) < NODES_MAX
    overflow = "() => document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(overflow) <= 0


def test_the_search_opens_by_its_key_and_goes_to_a_topic(open_page: OpenPage) -> None:
    page = open_page("/groups")
    page.locator(".vrow").first.wait_for()
    page.keyboard.press("Control+k")
    page.keyboard.type("custom")
    page.get_by_role("option", name="customers topic").wait_for()
    assert axe.Axe().run(page).violations_count == 0
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="customers").wait_for()
    assert page.url.endswith("/console/topics/customers/records")
