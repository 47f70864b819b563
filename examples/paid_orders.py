"""Orders joined with the payments that came within an hour.

Two streams with a shared key and bounds in time; a match is written to `paid-orders` exactly once.
"""

from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from examples.shop import LATENESS, Shop, run
from penstock.spark import TimedStream, join_within

TOPIC = "paid-orders"


def start(shop: Shop, *, once: bool = True) -> StreamingQuery:
    """Start the query."""
    joined = join_within(
        TimedStream(shop.orders(), "at", LATENESS),
        TimedStream(shop.payments(), "paid_at", LATENESS),
        on=["order_id"],
        within="1 hour",
    )
    rows = joined.select(
        "order_id",
        "customer",
        "country",
        "cents",
        "payment_id",
        "method",
        (sf.unix_millis("paid_at") - sf.unix_millis("at")).alias("wait_ms"),
    )
    sink = shop.sink(TOPIC, "paid-order-v1", "order_id")
    return shop.start("paid-orders", rows, sink, once=once)


def read_results(shop: Shop) -> dict[str, tuple[str, int]]:
    """By order id: payment id and wait, to be compared with the expected results."""
    rows = shop.table(TOPIC).select("order_id", "payment_id", "wait_ms").collect()
    return {order: (payment, wait_ms) for order, payment, wait_ms in rows}


if __name__ == "__main__":
    run(__doc__, start)
