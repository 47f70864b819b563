"""Orders and payments of a shop, made up from a seed. Pure: no clock, no file, no network.

Three programs write orders at the same time, each with another version of the schema; a fourth is
broken. Event times run over `SPAN_MS` and are out of order by at most `JITTER_MS`. Who reads all
of them at once, or a partition at the pace of the others, drops nothing with a watermark of ten
minutes; who cuts a few hundred events into small batches runs ahead in one partition by as much.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.model import Millis

START: Final = Millis(1_767_225_600_000)  # 2026-01-01T00:00:00Z
SPAN_MS: Final = 6 * 3_600_000
JITTER_MS: Final = 120_000
PAY_WITHIN_MS: Final = 3_600_000  # what comes later is not joined with its order
COUNTRIES: Final = ("DE", "FR", "IT", "PL", "ES")
CHANNELS: Final = ("web", "app", "shop")
METHODS: Final = ("card", "transfer", "wallet")
CUSTOMERS: Final = 200
SPOILED_EVERY: Final = 50  # orders for one event of the broken program


@dataclass(frozen=True, slots=True)
class Order:
    """One order; `version` is the schema that it is written with."""

    version: int
    order_id: str
    customer: str
    country: str
    cents: int
    at: Millis
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
    """Somebody paid for an order."""

    payment_id: str
    order_id: str
    cents: int
    method: str
    at: Millis

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

    GARBAGE = "garbage"  # no frame at all
    UNKNOWN_ID = "unknown id"  # a frame with a schema id that nobody registered
    TRUNCATED = "truncated"  # a good event cut short


@dataclass(frozen=True, slots=True)
class Spoiled:
    """An event of the broken program, in the topic of orders."""

    kind: BadKind
    order: Order  # what it would have been
    noise: bytes  # of GARBAGE


@dataclass(frozen=True, slots=True)
class Story:
    """All that happens, in the order in which it is written."""

    orders: tuple[Order, ...]
    payments: tuple[Payment, ...]
    spoiled: tuple[Spoiled, ...]


def tell(seed: int = 7, orders: int = 5_000) -> Story:
    """The story of so many orders."""
    chance = random.Random(seed)
    placed = tuple(_order(chance, number, orders) for number in range(orders))
    payments = tuple(
        _payment(chance, order, number)
        for number, order in enumerate(placed)
        if chance.random() < 0.85
    )
    spoiled = tuple(
        Spoiled(chance.choice(tuple(BadKind)), order, b"\xff" + chance.randbytes(30))
        for order in placed[::SPOILED_EVERY]
    )
    return Story(placed, payments, spoiled)


def _order(chance: random.Random, number: int, orders: int) -> Order:
    version = chance.choice((1, 2, 2, 3, 3, 3))
    return Order(
        version,
        order_id=f"o-{number:07}",
        customer=f"c-{chance.randrange(CUSTOMERS):04}",
        country=chance.choice(COUNTRIES),
        cents=chance.randint(100, 20_000),
        at=Millis(START + number * SPAN_MS // orders + chance.randrange(JITTER_MS)),
        channel=chance.choice(CHANNELS) if version >= 2 else "web",
        coupon=f"save-{chance.randrange(9)}" if version >= 3 and chance.random() < 0.2 else None,
        items=_items(chance) if version >= 3 else (),
    )


def _items(chance: random.Random) -> tuple[tuple[str, int], ...]:
    return tuple(
        (f"sku-{chance.randrange(500):03}", chance.randint(1, 5))
        for _ in range(chance.randint(1, 4))
    )


def _payment(chance: random.Random, order: Order, number: int) -> Payment:
    # Mostly within minutes; a few forget about it until it is too late for the join.
    wait_ms = chance.randint(1_000, 5 * JITTER_MS)
    if chance.random() < 0.05:
        wait_ms += PAY_WITHIN_MS
    return Payment(
        payment_id=f"p-{number:07}",
        order_id=order.order_id,
        cents=order.cents,
        method=chance.choice(METHODS),
        at=Millis(order.at + wait_ms),
    )
