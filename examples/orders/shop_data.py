"""Orders and payments of a shop, generated from a seed. Pure: no clock, no file, no network.

Three programs write orders at the same time, each with another version of the schema; a fourth is
broken. Event times span `SPAN_MS` and are out of order by at most `JITTER_MS`. With a watermark of
ten minutes no event is late, unless a few hundred events are read in small batches: then one
partition may be read that far ahead of the others.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

START: Final = 1_767_225_600_000  # milliseconds since 1970: 2026-01-01T00:00:00Z
SPAN_MS: Final = 6 * 3_600_000
JITTER_MS: Final = 120_000
PAY_WITHIN_MS: Final = 3_600_000  # later payments are not joined with their order
COUNTRIES: Final = ("DE", "FR", "IT", "PL", "ES")
CHANNELS: Final = ("web", "app", "shop")
METHODS: Final = ("card", "transfer", "wallet")
CUSTOMERS: Final = 200
BAD_EVERY: Final = 50  # orders per event of the broken program


@dataclass(frozen=True, slots=True)
class Order:
    """One order; `version` is the version of the schema that it is written with."""

    version: int
    order_id: str
    customer: str
    country: str
    cents: int
    at: int
    channel: str = "web"
    coupon: str | None = None
    items: tuple[tuple[str, int], ...] = ()

    def fields(self) -> dict[str, Any]:
        """The fields that its version of the schema has."""
        fields: dict[str, Any] = {
            "order_id": self.order_id,
            "customer": self.customer,
            "country": self.country,
            "cents": self.cents,
            "at": self.at,
        }
        if self.version >= 2:
            fields["channel"] = self.channel
        if self.version >= 3:
            fields["coupon"] = self.coupon
            fields["items"] = [{"sku": sku, "quantity": count} for sku, count in self.items]
        return fields


@dataclass(frozen=True, slots=True)
class Payment:
    """The payment of an order."""

    payment_id: str
    order_id: str
    cents: int
    method: str
    at: int

    def fields(self) -> dict[str, Any]:
        """The fields of the schema."""
        return {
            "payment_id": self.payment_id,
            "order_id": self.order_id,
            "cents": self.cents,
            "method": self.method,
            "paid_at": self.at,
        }


class BadKind(StrEnum):
    """What the broken program does to an event."""

    GARBAGE = "garbage"  # without a frame
    UNKNOWN_ID = "unknown id"  # a frame with a schema id that is not registered
    TRUNCATED = "truncated"  # without its last bytes


@dataclass(frozen=True, slots=True)
class BadEvent:
    """An event of the broken program, in the topic of orders."""

    kind: BadKind
    order: Order  # what it would have been
    garbage: bytes  # the value of GARBAGE


@dataclass(frozen=True, slots=True)
class ShopData:
    """All events, in the order in which they are written."""

    orders: tuple[Order, ...]
    payments: tuple[Payment, ...]
    bad_events: tuple[BadEvent, ...]


def generate(seed: int = 7, orders: int = 5_000) -> ShopData:
    """A shop with this many orders."""
    rng = random.Random(seed)
    placed = tuple(_order(rng, number, orders) for number in range(orders))
    payments = tuple(
        _payment(rng, order, number) for number, order in enumerate(placed) if rng.random() < 0.85
    )
    bad_events = tuple(
        BadEvent(rng.choice(tuple(BadKind)), order, b"\xff" + rng.randbytes(30))
        for order in placed[::BAD_EVERY]
    )
    return ShopData(placed, payments, bad_events)


def _order(rng: random.Random, number: int, orders: int) -> Order:
    version = rng.choice((1, 2, 2, 3, 3, 3))
    return Order(
        version,
        order_id=f"o-{number:07}",
        customer=f"c-{rng.randrange(CUSTOMERS):04}",
        country=rng.choice(COUNTRIES),
        cents=rng.randint(100, 20_000),
        at=START + number * SPAN_MS // orders + rng.randrange(JITTER_MS),
        channel=rng.choice(CHANNELS) if version >= 2 else "web",
        coupon=f"save-{rng.randrange(9)}" if version >= 3 and rng.random() < 0.2 else None,
        items=_items(rng) if version >= 3 else (),
    )


def _items(rng: random.Random) -> tuple[tuple[str, int], ...]:
    return tuple(
        (f"sku-{rng.randrange(500):03}", rng.randint(1, 5)) for _ in range(rng.randint(1, 4))
    )


def _payment(rng: random.Random, order: Order, number: int) -> Payment:
    # Most pay within minutes; a few too late for the join.
    wait_ms = rng.randint(1_000, 5 * JITTER_MS)
    if rng.random() < 0.05:
        wait_ms += PAY_WITHIN_MS
    return Payment(
        payment_id=f"p-{number:07}",
        order_id=order.order_id,
        cents=order.cents,
        method=rng.choice(METHODS),
        at=order.at + wait_ms,
    )
