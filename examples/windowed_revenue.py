"""Revenue by hour and country, as a table that is always up to date.

Reads `orders` of all schema versions, and upserts each window's total to the compacted topic
`revenue`, exactly once.
"""

from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from examples.orders import Total
from examples.shop import LATENESS, Shop, run
from penstock.spark import tumbling

TOPIC = "revenue"


def start(shop: Shop, *, once: bool = True) -> StreamingQuery:
    """Start the query."""
    hourly = tumbling(
        shop.orders("country,cents,at"),
        "at",
        "1 hour",
        lateness=LATENESS,
        by=["country"],
        orders=sf.count("*"),
        cents=sf.sum("cents"),
    )
    rows = hourly.select(
        sf.col("window_start").alias("hour"),
        "country",
        "orders",
        "cents",
        sf.concat_ws(" ", sf.unix_millis("window_start"), "country").cast("binary").alias("_key"),
    )
    sink = shop.sink(TOPIC, "revenue-v1", "_key")
    return shop.start("windowed-revenue", rows, sink, mode="update", once=once)


def read_results(shop: Shop) -> dict[tuple[int, str], Total]:
    """The content of the topic, to be compared with the expected results."""
    rows = shop.table(TOPIC).select(sf.unix_millis("hour"), "country", "orders", "cents").collect()
    return {(hour, country): Total(orders, cents) for hour, country, orders, cents in rows}


if __name__ == "__main__":
    run(__doc__, start)
