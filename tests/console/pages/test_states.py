"""What a page says while it waits, when there is nothing, when it failed, and without a login."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.console.pages.conftest import OpenPage, Watch

pytestmark = pytest.mark.slow
TOPICS = "**/console/api/topics"
UNAVAILABLE = {"error": {"code": "kafka_unavailable", "message": "no broker responds"}}


def test_a_page_that_waits_says_so_and_one_that_failed_can_be_tried_again(
    open_page: OpenPage, watch: Watch
) -> None:
    watch.expected.append("503")
    waiting: list[Route] = []
    page = open_page("/groups")
    page.locator(".vrow").first.wait_for()
    page.route(TOPICS, lambda route: waiting.append(route))
    page.get_by_role("link", name="Topics").click()
    page.locator(".state.loading", has_text="Loading…").wait_for()
    waiting[0].fulfill(status=503, json=UNAVAILABLE)
    failed = page.locator(".state.failed")
    failed.get_by_text("Cannot load topics.").wait_for()
    failed.get_by_text("no broker responds").wait_for()
    page.unroute(TOPICS)
    page.get_by_role("button", name="Try again").click()
    page.locator(".vrow").first.wait_for()
    page.route(TOPICS, lambda route: route.fulfill(status=503, json=UNAVAILABLE))
    stale = page.locator(".stale", has_text="Not updated for")
    stale.wait_for()
    assert page.locator(".vrow").count() > 0  # what was shown stays
    page.unroute(TOPICS)
    stale.wait_for(state="detached")


def test_a_page_without_data_says_what_would_be_here_and_how_to_make_it(
    open_page: OpenPage,
) -> None:
    page = open_page("/nothing")
    empty = {"columns": ["name"], "rows": []}
    page.route(TOPICS, lambda route: route.fulfill(json=empty))
    page.get_by_role("link", name="Topics").click()
    page.get_by_text("There are no topics.").wait_for()
    page.locator("code", has_text="penstock topic create").wait_for()


def test_without_pipelines_the_page_says_how_to_report_one(open_page: OpenPage) -> None:
    page = open_page("/nothing")
    page.route("**/pipelines", lambda route: route.fulfill(json={"pipelines": []}))
    page.get_by_role("link", name="Pipelines").click()
    page.get_by_text("No pipeline has reported.").wait_for()


def test_a_request_without_a_login_shows_where_to_log_in(open_page: OpenPage, watch: Watch) -> None:
    watch.expected.append("401")
    page = open_page("/groups")
    page.locator(".vrow").first.wait_for()
    page.route(TOPICS, lambda route: route.fulfill(status=401, json=UNAVAILABLE))
    page.get_by_role("link", name="Topics").click()
    page.get_by_role("heading", name="Log in").wait_for()
