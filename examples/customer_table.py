"""A table of customers: how many orders each has placed, and for how much.

Every change is an upsert by key to the compacted topic `customers`: whoever reads it from its
beginning has the table, and a stream can be joined with it (`penstock.spark.join_table`).
"""

from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples.orders import Total
from examples.shop import Shop, run

TOPIC = "customers"


def start(shop: Shop, *, once: bool = True) -> StreamingQuery:
    """The query."""
    orders = shop.orders("customer,cents")
    rows = orders.groupBy("customer").agg(
        F.count("*").alias("orders"), F.sum("cents").alias("cents")
    )
    sink = shop.sink(TOPIC, "customer-v1", "customer")
    return shop.start("customer-table", rows, sink, mode="update", once=once)


def found(shop: Shop) -> dict[str, Total]:
    """What is in the topic, to be compared with what was expected."""
    rows = shop.table(TOPIC).select("customer", "orders", "cents").collect()
    return {customer: Total(orders, cents) for customer, orders, cents in rows}


if __name__ == "__main__":
    run(__doc__, start)
