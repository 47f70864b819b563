"""A search that stops before its end: the page says where and why, and its address goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest
from confluent_kafka import Producer

from tests.console.pages.conftest import OpenPage, create_topic

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from penstock.testing.platform import Platform

pytestmark = pytest.mark.slow
TOPIC = "stopped"
RECORDS = 60_000  # several times what one request of the page reads with so low a limit
SCAN_MAX = 1_000
FINISHED = 2  # requests before the one that is stopped


@pytest.fixture(scope="module")
def stopped(console: Platform) -> None:
    with httpx.Client(base_url=console.registry_url) as http:
        create_topic(http, TOPIC)
    producer = Producer({"bootstrap.servers": console.bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, b'{"n": %d, "filler": "%s"}' % (number, b"x" * 80))
        if number % 5_000 == 0:
            producer.flush(20)
    assert producer.flush(20) == 0


@pytest.mark.usefixtures("stopped")
def test_a_stopped_search_says_where_it_is_and_its_address_continues(open_page: OpenPage) -> None:
    page = open_page("/topics")
    page.locator(".vrow").first.wait_for()
    requests: list[Route] = []

    def limit(route: Route) -> None:
        requests.append(route)
        if len(requests) <= FINISHED:
            body = json.loads(route.request.post_data or "")
            route.continue_(post_data=json.dumps({**body, "scan_max": SCAN_MAX}))

    page.route("**/search", limit)
    place = "records?order=oldest&filter=value.n%20%3E%3D%2059990%20or%20value.n%20%3D%3D%205"
    page.goto(page.url.replace("/topics", f"/topics/{TOPIC}/{place}"))
    page.wait_for_url("**cursor=**")
    page.get_by_role("button", name="Stop").click()
    status = page.locator(".search-status", has_text="stopped")
    status.wait_for()
    text = status.inner_text()
    assert "1 matched" in text
    assert "at partition 0, offset" in text
    assert "the last request ended at its limit of offsets" in text
    assert "(100 %)" not in text
    page.unroute("**/search")
    other = open_page(page.url[page.url.index("/console") + len("/console") :])
    other.get_by_text("everything in the range was scanned").wait_for()
    assert "60,000 of 60,000 offsets (100 %) · 11 matched" in (
        other.locator(".search-status").inner_text()
    )
    assert other.locator(".vrow").count() == 10  # the first match is before the cursor
    page.get_by_role("button", name="Search further").click()
    page.get_by_text("everything in the range was scanned").wait_for()
    assert page.locator(".vrow").count() == 11
