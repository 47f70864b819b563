"""Orders joined with their payments, if those came within an hour.

Two streams on a shared key with bounds in time; a match is written to `paid-orders` exactly once.
"""

from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples.shop import LATENESS, Shop, run
from penstock.spark import TimedStream, join_within

TOPIC = "paid-orders"


def start(shop: Shop, *, once: bool = True) -> StreamingQuery:
    """The query."""
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
        (F.unix_millis("paid_at") - F.unix_millis("at")).alias("wait_ms"),
    )
    sink = shop.sink(TOPIC, "paid-order-v1", "order_id")
    return shop.start("paid-orders", rows, sink, once=once)


def found(shop: Shop) -> dict[str, tuple[str, int]]:
    """Order id: payment id and milliseconds, to be compared with what was expected."""
    rows = shop.table(TOPIC).select("order_id", "payment_id", "wait_ms").collect()
    return {order: (payment, wait_ms) for order, payment, wait_ms in rows}


if __name__ == "__main__":
    run(__doc__, start)
