"""What the pipelines must find, worked out from the story itself in plain Python.

Shares nothing with the code that is checked: no log, no schema, no Spark.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from examples.orders.story import PAY_WITHIN_MS, BadKind, Story
from penstock.model import Millis

WINDOW_MS: Final = 3_600_000

# What a reader says of each kind; the labels of `penstock.quarantine.reason`.
REASONS: Final = {
    BadKind.GARBAGE: "not_framed",
    BadKind.UNKNOWN_ID: "unknown_schema",
    BadKind.TRUNCATED: "undecodable",
}


class Total(NamedTuple):
    """Some orders together."""

    orders: int = 0
    cents: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """The results."""

    revenue: dict[tuple[Millis, str], Total]  # by start of the hour, and country
    paid: dict[str, tuple[str, int]]  # order id: payment id and milliseconds waited for it
    quarantined: dict[str, int]  # by reason
    customers: dict[str, Total]  # the upsert table
    versions: dict[int, int]  # good orders by version of the schema


def expected(story: Story) -> Expected:
    """The results of all pipelines once they have read everything."""
    return Expected(
        revenue=_revenue(story),
        paid=_paid(story),
        quarantined=dict(Counter(REASONS[spoiled.kind] for spoiled in story.spoiled)),
        customers=_customers(story),
        versions=dict(Counter(order.version for order in story.orders)),
    )


def _revenue(story: Story) -> dict[tuple[Millis, str], Total]:
    totals: dict[tuple[Millis, str], Total] = {}
    for order in story.orders:
        place = (Millis(order.at - order.at % WINDOW_MS), order.country)
        before = totals.get(place, Total())
        totals[place] = Total(before.orders + 1, before.cents + order.cents)
    return totals


def _paid(story: Story) -> dict[str, tuple[str, int]]:
    placed = {order.order_id: order.at for order in story.orders}
    waits = {
        payment.order_id: (payment.payment_id, payment.at - placed[payment.order_id])
        for payment in story.payments
    }
    return {order: found for order, found in waits.items() if 0 <= found[1] <= PAY_WITHIN_MS}


def _customers(story: Story) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for order in story.orders:
        before = totals.get(order.customer, Total())
        totals[order.customer] = Total(before.orders + 1, before.cents + order.cents)
    return totals
