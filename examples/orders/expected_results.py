"""The results that the pipelines must have, computed from the generated data in plain Python.

Shares nothing with the code under test: no log, no schema, no Spark.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from examples.orders.shop_data import PAY_WITHIN_MS, BadKind, ShopData

WINDOW_MS: Final = 3_600_000

# Why a reader rejects each kind: the labels of `penstock.quarantine.reason`.
REASONS: Final = {
    BadKind.GARBAGE: "not_framed",
    BadKind.UNKNOWN_ID: "unknown_schema",
    BadKind.TRUNCATED: "undecodable",
}


class Total(NamedTuple):
    """Several orders together."""

    orders: int = 0
    cents: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """The results of all pipelines."""

    revenue: dict[tuple[int, str], Total]  # by start of the hour, and country
    paid: dict[str, tuple[str, int]]  # order id: payment id and the wait for it in milliseconds
    quarantined: dict[str, int]  # by reason
    customers: dict[str, Total]  # the upsert table
    versions: dict[int, int]  # good orders by version of the schema


def expected(data: ShopData) -> Expected:
    """The results of all pipelines once they have read everything."""
    return Expected(
        revenue=_revenue(data),
        paid=_paid(data),
        quarantined=dict(Counter(REASONS[bad.kind] for bad in data.bad_events)),
        customers=_customers(data),
        versions=dict(Counter(order.version for order in data.orders)),
    )


def _revenue(data: ShopData) -> dict[tuple[int, str], Total]:
    totals: dict[tuple[int, str], Total] = {}
    for order in data.orders:
        window = (order.at - order.at % WINDOW_MS, order.country)
        before = totals.get(window, Total())
        totals[window] = Total(before.orders + 1, before.cents + order.cents)
    return totals


def _paid(data: ShopData) -> dict[str, tuple[str, int]]:
    ordered_at = {order.order_id: order.at for order in data.orders}
    waits = {
        payment.order_id: (payment.payment_id, payment.at - ordered_at[payment.order_id])
        for payment in data.payments
    }
    return {
        order_id: (payment_id, wait_ms)
        for order_id, (payment_id, wait_ms) in waits.items()
        if 0 <= wait_ms <= PAY_WITHIN_MS
    }


def _customers(data: ShopData) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for order in data.orders:
        before = totals.get(order.customer, Total())
        totals[order.customer] = Total(before.orders + 1, before.cents + order.cents)
    return totals
