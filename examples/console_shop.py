"""A small shop for the pages of the console: topics, schemas, groups with lag, a quarantine.

`write_shop` fills a platform, so that every page has something to show. The same numbers each time.
"""

import json
import random
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx

from penstock import Consumer, Registry

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
CUSTOMERS: Final = "customers"
CLICKS: Final = "clicks"
TOPICS: Final = {ORDERS: 3, PAYMENTS: 1, CUSTOMERS: 1, CLICKS: 6}
BILLING: Final = "billing"

_CITIES: Final = ("berlin", "lisbon", "oslo", "paris", "rome", "vienna")
_FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "order_id", "type": "string", "doc": "Unique in the shop"},
    {"name": "city", "type": "string"},
    {"name": "cents", "type": "long", "doc": "The total, with tax"},
    {"name": "express", "type": "boolean", "default": False},
]
_STATUS: Final[dict[str, Any]] = {
    "name": "status",
    "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"]},
    "default": "NEW",
}
_NOTE: Final[dict[str, Any]] = {"name": "note", "type": ["null", "string"], "default": None}
_HOUR_MS: Final = 3_600_000
_BATCH: Final = 500


def write_shop(kafka: str, url: str, orders: int = 1500) -> None:
    """Create the topics and schemas, write the events, and let the groups read some of them."""
    draw = random.Random(7)
    now_ms = time.time_ns() // 1_000_000
    with httpx.Client(base_url=url, timeout=30) as http:
        for name, partitions in TOPICS.items():
            policy = {"cleanup.policy": "compact"} if name == CUSTOMERS else {}
            body = {"name": name, "partitions": partitions, "configs": policy}
            http.post("/topics", json=body).raise_for_status()
        ids = [_register(http, f"{ORDERS}-value", fields) for fields in _versions()]
        # It names a schema that does not exist.
        broken = {"key": "broken", "value_base64": "AAAAf/8=", "timestamp": now_ms - _HOUR_MS}
        _produce(http, ORDERS, iter([broken] * 3), {})
        _produce(http, ORDERS, _orders(draw, now_ms, orders), {"value_schema_id": ids[-1]})
        _produce(http, PAYMENTS, _payments(draw, now_ms, orders // 2), {})
        _produce(http, CLICKS, _clicks(draw, now_ms, orders * 2), {})
        _produce(http, CUSTOMERS, _customers(), {})
    _read_some(kafka, url, ORDERS, BILLING, orders * 2 // 3)
    _read_some(kafka, url, PAYMENTS, "ledger", orders // 2)


def _versions() -> list[list[dict[str, Any]]]:
    return [_FIELDS[:3], _FIELDS, [*_FIELDS, _STATUS, _NOTE]]


def _register(http: httpx.Client, subject: str, fields: list[dict[str, Any]]) -> int:
    schema = {"type": "record", "name": "Order", "doc": "An order of the shop", "fields": fields}
    response = http.post(f"/subjects/{subject}/versions", json={"schema": json.dumps(schema)})
    number: int = response.raise_for_status().json()["id"]
    return number


def _produce(
    http: httpx.Client, topic: str, records: Iterator[dict[str, Any]], more: dict[str, Any]
) -> None:
    waiting = list(records)
    for first in range(0, len(waiting), _BATCH):
        body = {"records": waiting[first : first + _BATCH], **more}
        response = http.post(f"/topics/{topic}/produce", json=body).raise_for_status()
        errors = [each["error"] for each in response.json()["records"] if "error" in each]
        assert not errors, errors[0]


def _times(draw: random.Random, now_ms: int, count: int) -> list[int]:
    """Busy and quiet minutes of the last hour, in order."""
    marks = [draw.triangular(0, 1, 0.7) for _ in range(count)]
    bursts = [mark - 0.4 * (mark % 0.1) for mark in marks]
    return sorted(now_ms - _HOUR_MS + int(mark * _HOUR_MS) for mark in bursts)


def _orders(draw: random.Random, now_ms: int, count: int) -> Iterator[dict[str, Any]]:
    for number, at in enumerate(_times(draw, now_ms, count)):
        value = {
            "order_id": f"o-{number:05}",
            "city": draw.choice(_CITIES),
            "cents": draw.randrange(500, 25_000),
            "express": draw.random() < 0.2,
            "status": draw.choice(("NEW", "PAID", "SENT")),
            "note": "leave at the door" if number % 40 == 0 else None,
        }
        key = f"customer-{draw.randrange(200)}"
        yield {"key": key, "value": value, "timestamp": at, "headers": [["source", "shop"]]}


def _payments(draw: random.Random, now_ms: int, count: int) -> Iterator[dict[str, Any]]:
    for number, at in enumerate(_times(draw, now_ms, count)):
        value = {"order_id": f"o-{number:05}", "method": draw.choice(("card", "invoice"))}
        yield {"key": f"o-{number:05}", "value": value, "timestamp": at}


def _clicks(draw: random.Random, now_ms: int, count: int) -> Iterator[dict[str, Any]]:
    for at in _times(draw, now_ms, count):
        page = draw.choice(("/", "/cart", "/search", "/item/17"))
        yield {"key": f"visitor-{draw.randrange(80)}", "value": {"page": page}, "timestamp": at}


def _customers() -> Iterator[dict[str, Any]]:
    for number in range(200):
        yield {"key": f"customer-{number}", "value": {"city": _CITIES[number % len(_CITIES)]}}


def _read_some(kafka: str, url: str, topic: str, group: str, count: int) -> None:
    """Read and commit; what cannot be decoded goes to quarantine."""
    with Registry(url, client=group) as registry:
        known = registry if topic == ORDERS else None
        with Consumer(kafka, topic, group, registry=known, as_dicts=True) as consumer:
            deadline_s = time.monotonic() + 30
            read = 0
            while read + consumer.quarantined < count and time.monotonic() < deadline_s:
                read += len(consumer.take(200))
