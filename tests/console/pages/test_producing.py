"""Records written through the page: by a form, as JSON where a form cannot, and the same again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.console.pages.conftest import BOTH_SERVERS, OpenPage, create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from penstock.testing.platform import Platform

pytestmark = pytest.mark.slow
SERVERS = BOTH_SERVERS
Written: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

HEADERS: list[tuple[str, bytes | None]] = [
    ("text", b" a=b "),
    ("binary", b"\xff\x00"),
    ("null", None),
    ("lines", b"a\r\nb\nc"),
    ("same", b"1"),
    ("same", b""),
]
PLAIN: dict[str, Written] = {
    "text": (b"key", b"hello", []),
    "binary": (b"\xff\x00", b"\xfe\x01", HEADERS),
    "null": (b"key", None, []),
    "empty": (None, b"", []),
    "json": (b'{ "a": 1 }', b'{"n": 9007199254740993,  "x": 1.0}\r\n', []),
    "lines": (b"a\r\nb", "\ufeffmark\r\nline".encode(), []),
    "large": (b"key", b"\xff" * 100_000, []),
}
FIELDS: list[dict[str, Any]] = [
    {"name": "digest", "type": "bytes"},
    {"name": "agreed", "type": ["null", "boolean"]},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "count", "type": "long"},
    {"name": "level", "type": "int", "default": 3},
]
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "label", "type": ["string", "long"]},
        {"name": "next", "type": ["null", "Node"], "default": None},
    ],
}


@pytest.fixture
def http(console: Platform) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.registry_url, timeout=30) as client:
        yield client


def register(http: httpx.Client, topic: str, schema: Any) -> int:
    body = {"schema": json.dumps(schema)}
    answer = http.post(f"/subjects/{topic}-value/versions", json=body).raise_for_status()
    number: int = answer.json()["id"]
    return number


def records_of(bootstrap: str, topic: str, count: int) -> list[Written]:
    """The records of partition 0, as a client of Kafka reads them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    rows: list[Written] = []
    while len(rows) < count:
        message = consumer.poll(30)
        assert message is not None, f"{len(rows)} of {count} records"
        key, value = message.key(), message.value()
        assert not isinstance(key, str)
        assert not isinstance(value, str)
        rows.append((key, value, list(message.headers() or [])))  # type: ignore[arg-type]  # str is in the stubs only
    consumer.close()
    return rows


def produce_again(page: Page) -> None:
    page.get_by_role("button", name="Produce", exact=True).click()
    page.get_by_role("link", name="Show it").wait_for()


def test_records_are_produced_again_with_the_same_bytes(
    open_page: OpenPage, console: Platform, http: httpx.Client
) -> None:
    topic = "same-again"
    create_topic(http, topic)
    producer = Producer({"bootstrap.servers": console.bootstrap, "log_level": 0})
    for key, value, headers in PLAIN.values():
        producer.produce(topic, key=key, value=value, headers=[*headers])
    assert producer.flush(20) == 0
    for offset in range(len(PLAIN)):
        page = open_page(f"/topics/{topic}/produce?from=0%3A{offset}")
        produce_again(page)
        page.close()
    rows = records_of(console.bootstrap, topic, 2 * len(PLAIN))
    for number, name in enumerate(PLAIN):
        assert rows[number] == PLAIN[name]
        assert rows[number + len(PLAIN)] == PLAIN[name], name


def test_a_value_under_a_schema_is_the_same_until_it_is_changed(
    open_page: OpenPage, console: Platform, http: httpx.Client
) -> None:
    topic = "schema-again"
    create_topic(http, topic)
    first = register(http, topic, {"type": "record", "name": "R", "fields": FIELDS[:-1]})
    register(http, topic, {"type": "record", "name": "R", "fields": FIELDS})
    value = {"digest": "/wA=", "agreed": None, "note": "", "count": 9007199254740993}
    body = {"key": "k", "value": value, "value_schema_id": first}
    http.post(f"/topics/{topic}/produce", json=body).raise_for_status()
    page = open_page(f"/topics/{topic}/produce?from=0%3A0")
    assert page.get_by_label("digest").input_value() == "/wA="
    assert page.get_by_label("agreed").input_value() == ""
    assert page.get_by_label("level").input_value() == "3"
    page.get_by_role("button", name="Edit as JSON").click()
    page.get_by_role("button", name="Edit as a form").click()
    produce_again(page)
    page.get_by_label("level").fill("4")
    page.get_by_role("button", name="Produce", exact=True).click()
    page.get_by_text("at offset 2").first.wait_for()
    original, same, changed = records_of(console.bootstrap, topic, 3)
    assert same == original
    assert changed[1] != original[1]
    page = open_page(f"/topics/{topic}/records?open=0%3A2")
    page.locator(".detail pre").wait_for()
    shown = json.loads(page.locator(".detail pre").inner_text())
    expected = {**value, "digest": {"base64": "/wA="}, "count": "9007199254740993", "level": 4}
    assert shown == expected


def test_a_header_and_a_key_are_entered_as_text_bytes_or_null(
    open_page: OpenPage, console: Platform, http: httpx.Client
) -> None:
    topic = "entered"
    create_topic(http, topic)
    page = open_page(f"/topics/{topic}/produce")
    page.get_by_label("Kind of key").select_option("base64")
    page.get_by_label("Key", exact=True).fill("/wA=")
    page.get_by_label("Kind of value").select_option("text")
    page.get_by_label("Value", exact=True).fill("hello")
    for name, kind, text in (("a", "text", "1"), ("b", "base64", "/w=="), ("c", "null", "")):
        page.get_by_role("button", name="Add a header").click()
        page.get_by_label("Header name").last.fill(name)
        page.get_by_label("Kind of header").last.select_option(kind)
        if text:
            page.get_by_label("Header value").last.fill(text)
    produce_again(page)
    (row,) = records_of(console.bootstrap, topic, 1)
    assert row == (b"\xff\x00", b"hello", [("a", b"1"), ("b", b"\xff"), ("c", None)])


def test_a_schema_with_unions_and_recursion_is_entered_as_json(
    open_page: OpenPage, http: httpx.Client
) -> None:
    topic = "recursive"
    create_topic(http, topic)
    register(http, topic, NODE)
    page = open_page(f"/topics/{topic}/produce")
    page.get_by_text("a form cannot show: enter JSON").wait_for()
    value = page.get_by_label("Value", exact=True)
    value.fill('{"label": true}')
    page.get_by_role("button", name="Check").click()
    assert "label" in page.locator(".verdict.bad").inner_text()
    value.fill('{"label": 7, "next": {"label": "end", "next": null}}')
    page.get_by_role("button", name="Check").click()
    page.get_by_text("The record is valid").wait_for()
    produce_again(page)
    events = http.get(f"/topics/{topic}/partitions/0/events?offset=0").json()["events"]
    assert events[-1]["value"] == {"label": 7, "next": {"label": "end", "next": None}}
