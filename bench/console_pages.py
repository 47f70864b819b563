"""Pages of the console with many topics and 1 000 000 records, in headless Chromium.

Part of `bench.console` and `bench.console_kafka`. Times are from the action to the frame
that shows the row, asked by the place on the screen. Each figure is the slowest of several.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.figures import LIMIT, Figure
from tests.support.chromium import CHROMIUM, WINDOW, launch
from tests.support.page_measures import NODES_MAX, node_count, open_until_ms, type_until_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

BATCH = 100  # topics of one request
RECORDS = 1_000_000
MILLION = "million"
VISITS = 5
FILTERS = ("m", "many-0", "many-04", "many-04711", "9", "many-")
OFFSETS = 20
OPEN_MS = 1_000.0
FILTER_MS = 100.0
OFFSET_MS = 300.0


def page_figures(bootstrap: str, url: str, *, topics: int = 10_000) -> Iterator[Figure]:
    """All figures of pages; none without Chromium, with a message. At least 4 712 topics."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("no figures of pages: playwright is not installed", file=sys.stderr)
        return
    if CHROMIUM is None:
        print("no figures of pages: chromium is not installed (make tools)", file=sys.stderr)
        return
    create_topics(bootstrap, topics)
    write_records(bootstrap)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_context(viewport=WINDOW).new_page()
        yield from topics_page(page, f"{url.rstrip('/')}/console/topics?q=many-", topics)
        yield from records_page(page, f"{url.rstrip('/')}/console/topics/{MILLION}/records")
        browser.close()


def create_topics(bootstrap: str, topics: int) -> None:
    """Many with one partition, and one for the records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"many-{number:05}" for number in range(topics)]
    for first in range(0, topics, BATCH):
        batch = [NewTopic(name, 1, 1) for name in names[first : first + BATCH]]
        for topic in admin.create_topics(batch).values():
            topic.result(60)
    admin.create_topics([NewTopic(MILLION, 1, 1)])[MILLION].result(60)


def write_records(bootstrap: str) -> None:
    """A million, each with its offset as value."""
    settings = {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 2 * RECORDS}
    producer = Producer({**settings, "linger.ms": 20})
    for number in range(RECORDS):
        producer.produce(MILLION, key=b"k%d" % (number % 1000), value=b'{"n": %d}' % number)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def topics_page(page: Page, url: str, topics: int) -> Iterator[Figure]:
    """The first visit samples the cluster; the others get the last sample."""
    first = open_until_ms(page, url, "many-00000")
    yield _figure(f"{topics:,} topics, rows in sight, first visit", first, OPEN_MS)
    visits = [open_until_ms(page, url, "many-00000") for _ in range(VISITS)]
    yield _figure(f"{topics:,} topics, rows in sight, of {VISITS}", max(visits), OPEN_MS)
    times = [
        type_until_ms(page, "Filter topics", text, "many-" if text == "9" else text)
        for text in FILTERS
    ]
    yield _figure(f"{topics:,} topics, filter to paint, of {len(times)}", max(times), FILTER_MS)
    yield _nodes(f"{topics:,} topics", page)


def records_page(page: Page, url: str) -> Iterator[Figure]:
    """Any offset, by its field in the page."""
    visits = [open_until_ms(page, url, f'{{"n":{RECORDS - 1}}}') for _ in range(VISITS)]
    yield _figure(f"{RECORDS:,} records, rows in sight, of {VISITS}", max(visits), OPEN_MS)
    random = np.random.default_rng(1)
    times = [
        type_until_ms(page, "Go to offset", str(offset), f'{{"n":{offset}}}')
        for offset in random.integers(1_000, RECORDS, OFFSETS).tolist()
    ]
    yield _figure(f"{RECORDS:,} records, any offset, of {OFFSETS}", max(times), OFFSET_MS)
    yield _nodes(f"{RECORDS:,} records", page)


def _figure(name: str, slowest_ms: float, limit_ms: float) -> Figure:
    return Figure(name, slowest_ms, limit_ms, "ms", "<= 1.0", peer_name=LIMIT)


def _nodes(name: str, page: Page) -> Figure:
    count, limit = float(node_count(page)), float(NODES_MAX)
    return Figure(f"{name}, elements of the page", count, limit, "", "<= 1.0", peer_name=LIMIT)
