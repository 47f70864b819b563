"""Publish the shop's events: `python -m examples.orders`.

Topics `orders` and `payments`, three versions of the schema of orders, and what a broken program
wrote between them.
"""

import argparse
import sys

from examples.orders import publish, tell
from examples.shop import add_addresses


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description=__doc__)
    add_addresses(parser)
    parser.add_argument("--orders", type=int, default=5_000, help="how many orders")
    parser.add_argument("--seed", type=int, default=7, help="the same seed is the same shop")
    given = parser.parse_args()
    story = tell(seed=given.seed, orders=given.orders)
    publish(story, given.kafka, given.registry)
    sys.stdout.write(f"published {len(story.orders)} orders and {len(story.payments)} payments\n")


if __name__ == "__main__":
    main()
