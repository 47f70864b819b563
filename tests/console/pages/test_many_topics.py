"""Ten thousand topics in the list: only the rows in sight are in the page."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.platform import Platform
from tests.console.pages.conftest import OpenPage
from tests.support.page_measures import NODES_MAX, node_count, row_at, type_until_ms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
TOPICS = 10_000
BATCH = 100


@pytest.fixture(scope="module")
def console() -> Iterator[Platform]:
    """A platform of its own: so much would be in the way of other tests."""
    platform = Platform("many").start()
    yield platform
    platform.stop()


@pytest.fixture(scope="module")
def many(console: Platform) -> None:
    admin = AdminClient({"bootstrap.servers": console.bootstrap})
    for first in range(0, TOPICS, BATCH):
        names = [f"many-{number:05}" for number in range(first, first + BATCH)]
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            future.result(60)


@pytest.mark.usefixtures("many")
def test_ten_thousand_topics_are_listed_and_filtered(open_page: OpenPage) -> None:
    page = open_page("/topics?q=many-")
    page.get_by_text("10000 of").or_(page.get_by_text("10,000 of")).first.wait_for(timeout=60_000)
    page.locator(".vtable").focus()
    page.keyboard.press("End")
    page.locator(".vrow", has_text="many-09999").wait_for()
    assert "many-09999" in row_at(page, -1)
    assert "many-09998" in row_at(page, -2)
    assert node_count(page) < NODES_MAX
    page.keyboard.press("Home")
    assert "many-00000" in row_at(page)
    type_until_ms(page, "Filter topics", "many-04711", "many-04711")
    page.get_by_text("1 of").first.wait_for()
    assert page.locator(".vrow").count() == 1
    assert node_count(page) < NODES_MAX
