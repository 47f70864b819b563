"""A small shop, made up from a seed, and what must come out of it.

    story = tell(seed=7, orders=5_000)              # pure: the same seed is the same shop
    publish(story, bootstrap, registry_url)         # topics `orders` and `payments`, three schemas
    wanted = expected(story)                        # by plain Python, without a log or Spark

`story.py` makes it up, `publishing.py` writes it to a cluster, `expected.py` works out by itself
what the pipelines of `examples/` have to find.
"""

from examples.orders.expected import Expected, Total, expected
from examples.orders.publishing import SCHEMAS, Topics, publish
from examples.orders.story import BadKind, Order, Payment, Spoiled, Story, tell

__all__ = [
    "SCHEMAS",
    "BadKind",
    "Expected",
    "Order",
    "Payment",
    "Spoiled",
    "Story",
    "Topics",
    "Total",
    "expected",
    "publish",
    "tell",
]
