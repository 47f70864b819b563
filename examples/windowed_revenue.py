"""Revenue by hour and country, as a table that is always up to date.

Reads `orders` under whichever schema wrote them, and upserts each window's total to the compacted
topic `revenue`, exactly once.
"""

from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples.orders import Total
from examples.shop import LATENESS, Shop, run
from penstock.model import Millis
from penstock.spark import tumbling

TOPIC = "revenue"


def start(shop: Shop, *, once: bool = True) -> StreamingQuery:
    """The query."""
    hourly = tumbling(
        shop.orders("country,cents,at"),
        "at",
        "1 hour",
        lateness=LATENESS,
        by=["country"],
        orders=F.count("*"),
        cents=F.sum("cents"),
    )
    rows = hourly.select(
        F.col("window_start").alias("hour"),
        "country",
        "orders",
        "cents",
        F.concat_ws(" ", F.unix_millis("window_start"), "country").cast("binary").alias("_key"),
    )
    sink = shop.sink(TOPIC, "revenue-v1", "_key")
    return shop.start("windowed-revenue", rows, sink, mode="update", once=once)


def found(shop: Shop) -> dict[tuple[Millis, str], Total]:
    """What is in the topic, to be compared with what was expected."""
    rows = shop.table(TOPIC).select(F.unix_millis("hour"), "country", "orders", "cents").collect()
    return {(Millis(hour), country): Total(orders, cents) for hour, country, orders, cents in rows}


if __name__ == "__main__":
    run(__doc__, start)
