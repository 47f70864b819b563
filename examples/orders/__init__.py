"""A small shop, generated from a seed, and the results that its pipelines must have.

    data = generate(seed=7, orders=5_000)         # pure: the same seed gives the same shop
    publish(data, bootstrap, registry_url)        # topics `orders` and `payments`, three schemas
    results = expected(data)                      # in plain Python, without a log or Spark

`shop_data.py` generates it, `publisher.py` writes it to a cluster, `expected_results.py` computes
the results of the pipelines in `examples/` independently of them.
"""

from examples.orders.expected_results import Expected, Total, expected
from examples.orders.publisher import SCHEMAS, Topics, publish
from examples.orders.shop_data import BadEvent, BadKind, Order, Payment, ShopData, generate

__all__ = [
    "SCHEMAS",
    "BadEvent",
    "BadKind",
    "Expected",
    "Order",
    "Payment",
    "ShopData",
    "Topics",
    "Total",
    "expected",
    "generate",
    "publish",
]
