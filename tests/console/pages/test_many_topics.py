"""Ten thousand topics in the list: only the rows in sight are in the page."""

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.platform import Platform
from tests.console.pages.conftest import OpenPage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
TOPICS = 10_000
BATCH = 500


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
    page.get_by_label("Filter topics").fill("many-04711")
    page.get_by_text("1 of").first.wait_for()
    assert page.locator(".vrow").count() == 1
    assert page.evaluate("() => document.querySelectorAll('*').length") < 2500
