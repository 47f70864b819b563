"""A million records in one partition: any offset is one step away, with few nodes in the page."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as PlainProducer

from penstock.testing.platform import Platform
from tests.console.pages.conftest import OpenPage
from tests.support.page_measures import NODES_MAX, node_count, row_at, type_until_ms

pytestmark = pytest.mark.slow
RECORDS = 1_000_000


@pytest.fixture(scope="module")
def console() -> Iterator[Platform]:
    """A platform of its own: so much would be in the way of other tests."""
    platform = Platform("many").start()
    yield platform
    platform.stop()


@pytest.fixture(scope="module")
def many(console: Platform) -> str:
    topic = console.make_topic(partitions=1)
    producer = PlainProducer(
        {"bootstrap.servers": console.bootstrap, "queue.buffering.max.messages": 2 * RECORDS}
    )
    for number in range(RECORDS):
        producer.produce(topic, value=b'{"n": %d}' % number, key=b"k%d" % (number % 1000))
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(90) == 0
    return topic


def test_any_offset_is_shown_by_its_address(open_page: OpenPage, many: str) -> None:
    for offset in (0, 123_456, RECORDS - 1):
        page = open_page(f"/topics/{many}/records?order=oldest&offset={offset}&open=0%3A{offset}")
        text = f'"n":{offset}' if offset else '"n":0'
        page.locator(".vrow", has_text=text).first.wait_for()
        assert node_count(page) < NODES_MAX
        page.close()


def test_the_list_jumps_to_both_ends_and_to_a_typed_offset(open_page: OpenPage, many: str) -> None:
    page = open_page(f"/topics/{many}/records")
    page.locator(".vrow", has_text=f'"n":{RECORDS - 1}').wait_for()
    page.locator(".vtable").focus()
    page.keyboard.press("End")
    page.locator(".vrow", has_text='{"n":0}').wait_for()
    assert '{"n":0}' in row_at(page, -1)
    for offset in (654_321, 1_000, RECORDS - 100):
        type_until_ms(page, "Go to offset", str(offset), f'{{"n":{offset}}}')
        assert f'{{"n":{offset - 5}}}' in row_at(page, 5)
        assert node_count(page) < NODES_MAX


def test_a_filter_over_all_records_is_counted_to_the_end(open_page: OpenPage, many: str) -> None:
    page = open_page(f"/topics/{many}/records?filter=value.n%20%3E%20999997")
    page.get_by_text("everything in the range was scanned").wait_for(timeout=100_000)
    status = page.locator(".search-status").inner_text()
    assert "Scanned 1,000,000 of 1,000,000 offsets (100 %) · 2 matched" in status
