"""The main ways through the console, in a browser, on real data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from tests.console.pages.conftest import BOTH_SERVERS, CANARY, OpenPage, create_topic

if TYPE_CHECKING:
    from penstock.testing.platform import Platform

SERVERS = BOTH_SERVERS


def test_a_person_goes_from_the_overview_to_a_record_and_back(open_page: OpenPage) -> None:
    page = open_page()
    page.locator(".tile", has_text="Offline partitions").get_by_text("0", exact=True).wait_for()
    page.get_by_role("link", name="Topics").click()
    page.get_by_label("Filter topics").fill("orders")
    page.locator(".vrow", has_text="1,503").wait_for()
    page.get_by_label("Filter topics").fill("payments")
    page.locator(".vrow", has_text="payments").click()
    page.locator(".vrow", has_text="o-00749").click()
    page.get_by_role("heading", name="Partition 0, offset 749").wait_for()
    assert '"order_id": "o-00749"' in page.locator(".detail pre").inner_text()
    assert page.url.endswith("/topics/payments/records?open=0%3A749")
    page.reload()
    page.get_by_role("heading", name="Partition 0, offset 749").wait_for()
    page.go_back()
    page.locator(".detail").wait_for(state="detached")
    page.go_back()
    page.get_by_role("heading", name="Topics").wait_for()


def test_a_filter_is_counted_and_stays_in_the_address(open_page: OpenPage) -> None:
    page = open_page("/topics/orders/records")
    page.locator(".vrow").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("value.cents > 24000 and value.city == 'oslo'".replace("'", '"'))
    page.keyboard.press("Enter")
    page.get_by_text("everything in the range was scanned").wait_for()
    status = page.locator(".search-status").inner_text()
    assert "Scanned 1,503 of 1,503 offsets (100 %)" in status
    shown = page.locator(".vrow").count()
    assert 0 < shown < 30
    assert all('"city":"oslo"' in text for text in page.locator(".vrow").all_inner_texts())
    page.reload()
    page.get_by_text("everything in the range was scanned").wait_for()
    assert page.locator(".vrow").count() == shown


def test_markup_in_keys_values_headers_and_schemas_stays_text(
    open_page: OpenPage, console: Platform
) -> None:
    with httpx.Client(base_url=console.registry_url) as http:
        record = {"key": CANARY, "value": {CANARY: CANARY}, "headers": [[CANARY, CANARY]]}
        create_topic(http, "canary")
        for body in (record, {"key": CANARY, "value_base64": "PGltZyBzcmM9eD4="}):
            http.post("/topics/canary/produce", json=body).raise_for_status()
    page = open_page("/topics/canary/records?open=0%3A0")
    page.locator(".detail pre").wait_for()
    for tab in ("Key", "Headers (1)", "Bytes", "Copy as", "Value"):
        page.get_by_role("tab", name=tab).click()
    assert CANARY in page.locator(".detail pre").inner_text().replace('\\"', '"')
    page.get_by_role("link", name="Produce again").click()
    page.get_by_role("button", name="Produce", exact=True).wait_for()
    assert page.evaluate("() => window.PWNED") is None
    assert page.locator("main img").count() == 0
