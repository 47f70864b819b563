"""Orders as values: the same seed and number give the same order in every shape and language."""

import random
from collections.abc import Iterator
from typing import Any, Final

from penstock.lab.order_schemas import FieldKind, OrderShape

ITEMS: Final = 10  # line items of an order: about 512 B in Avro
NUMBER_DIGITS: Final = 12
ID_PREFIX: Final = "order-"
_EPOCH_MS: Final = 1_750_000_000_000
_BEYOND_INT: Final = 1 << 33  # a sum that only a long can hold
_CURRENCIES: Final = ("EUR", "USD", "GBP", "SEK")
_TITLES: Final = (
    "a thing that people buy", "another thing of that kind", "something for the garden",
    "a book about streams", "two pairs of socks", "tea, whole leaves",
)  # fmt: skip
_PRODUCTS: Final = 2_000  # each has one name and price, so orders compress as those of a shop do
_STREETS: Final = ("Long Street", "Short Lane", "Harbour Road", "Mill Alley")


def order_id(number: int) -> str:
    """Of fixed width, so that it can be replaced in encoded orders."""
    return f"{ID_PREFIX}{number:0{NUMBER_DIGITS}d}"


def order_event(shape: OrderShape, seed: int, number: int) -> dict[str, Any]:
    """One order with the fields of a shape."""
    rng = random.Random(f"{seed}:{number}")
    customer = rng.randrange(100_000)
    everything: dict[str, Any] = {
        "order_id": order_id(number),
        "customer": f"customer-{customer:06d}",
        "created_at": _EPOCH_MS + number,
        "currency": rng.choice(_CURRENCIES),
        "cents": rng.randrange(1_000_000),
        "quantity": rng.randrange(1, 100),
        "email": f"customer.{customer}@shop.example.com",
        "street": f"{rng.randrange(200)} {rng.choice(_STREETS)}, Some Town",
        "express": rng.random() < 0.2,
        "note": "leave it with the neighbours" if rng.random() < 0.3 else None,
        "coupon": "AUTUMN-10" if rng.random() < 0.3 else None,
        "channel": rng.choice(("web", "phone")),
        "priority": rng.choice(("normal", "high")),
    }
    if rng.random() < 0.1 and _is_long(shape, "cents"):
        everything["cents"] += _BEYOND_INT
    everything["contact"] = everything["email"]
    everything["status"] = rng.choice(shape.statuses)
    everything["items"] = [_item(shape, rng) for _ in range(ITEMS)]
    row = {}
    for field in shape.fields:
        value = everything[field.name]
        if value is None and field.is_optional:
            continue
        row[field.name] = str(value) if field.kind is FieldKind.STRING else value
    return row


def _is_long(shape: OrderShape, name: str) -> bool:
    return any(one.name == name and one.kind is FieldKind.LONG for one in shape.fields)


def _item(shape: OrderShape, rng: random.Random) -> dict[str, Any]:
    product = rng.randrange(_PRODUCTS)
    item: dict[str, Any] = {
        "sku": f"SKU-{product * 48_611 % 10**8:08d}",
        "title": _TITLES[product % len(_TITLES)],
        "quantity": rng.randrange(1, 10),
        "cents": product * 7_919 % 10_000,
    }
    discount = rng.randrange(50)
    if any(field.name == "discount" for field in shape.item_fields) and discount < 10:
        item["discount"] = discount
    return item


def order_events(shape: OrderShape, seed: int, count: int) -> Iterator[dict[str, Any]]:
    """The orders 0 to before `count`."""
    return (order_event(shape, seed, number) for number in range(count))
