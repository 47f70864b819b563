"""Publish the shop's events: `python -m examples.orders`.

Topics `orders` and `payments`, three versions of the schema of orders, and the events of a broken
program among them.
"""

import argparse
import sys

from examples.orders import generate, publish
from examples.shop import add_addresses


def main() -> None:
    """Publish what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description=__doc__)
    add_addresses(parser)
    parser.add_argument("--orders", type=int, default=5_000, help="number of orders")
    parser.add_argument("--seed", type=int, default=7, help="the same seed gives the same shop")
    arguments = parser.parse_args()
    data = generate(seed=arguments.seed, orders=arguments.orders)
    publish(data, arguments.kafka, arguments.registry)
    sys.stdout.write(f"published {len(data.orders)} orders and {len(data.payments)} payments\n")


if __name__ == "__main__":
    main()
