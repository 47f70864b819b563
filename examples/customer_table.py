"""A table of customers: the number of orders that each has placed, and their total.

Every change is an upsert by key to the compacted topic `customers`: reading it from its start gives
the table, and a stream can be joined with it (`penstock.spark.join_table`).
"""

from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from examples.orders import Total
from examples.shop import Shop, run

TOPIC = "customers"


def start(shop: Shop, *, once: bool = True) -> StreamingQuery:
    """Start the query."""
    orders = shop.orders("customer,cents")
    rows = orders.groupBy("customer").agg(
        sf.count("*").alias("orders"), sf.sum("cents").alias("cents")
    )
    sink = shop.sink(TOPIC, "customer-v1", "customer")
    return shop.start("customer-table", rows, sink, mode="update", once=once)


def read_results(shop: Shop) -> dict[str, Total]:
    """The content of the topic, to be compared with the expected results."""
    rows = shop.table(TOPIC).select("customer", "orders", "cents").collect()
    return {customer: Total(orders, cents) for customer, orders, cents in rows}


if __name__ == "__main__":
    run(__doc__, start)
