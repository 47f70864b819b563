"""The first minute: a broker, a producer, a consumer group, a crash, and everything still there.

Run it with `make demo`. It starts its own broker in a temporary folder and leaves nothing behind.
Exit code 0 only if every number checks out.
"""

import json
import random
import sys
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from penstock.testing.embedded import EmbeddedBroker

ORDERS = 100_000
SEED = 7
QUIET = {"log_level": 0}  # the crash below is meant: no lines about lost connections
COUNTRIES = ("DE", "FR", "IT", "PL", "ES")


def main() -> int:
    console = Console()
    with EmbeddedBroker() as broker:
        console.print(f"A broker is up on [bold]{broker.bootstrap}[/] (process {broker.pid}).")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
        admin.create_topics([NewTopic("orders", 4, 1)])["orders"].result(10)

        started = time.perf_counter()
        expected = send_orders(broker.bootstrap)
        seconds = time.perf_counter() - started
        console.print(f"{ORDERS:,} orders acknowledged in {seconds:.1f} s. Now kill -9 …")
        broker.kill()
        broker.start()
        console.print("… and started again on the same folder.")

        found = sum_by_country(broker.bootstrap)
    show(console, expected, found)
    return 0 if expected == found else 1


def send_orders(bootstrap: str) -> dict[str, int]:
    """Produce seeded orders; revenue by country in cents, as the producer counted it."""
    chance = random.Random(SEED)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "compression.type": "lz4", **QUIET}
    )
    revenue = dict.fromkeys(COUNTRIES, 0)
    for number in range(ORDERS):
        country, cents = chance.choice(COUNTRIES), chance.randint(100, 20_000)
        revenue[country] += cents
        order = {"order": number, "country": country, "cents": cents}
        while True:
            try:
                producer.produce("orders", json.dumps(order), country)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise TimeoutError("not every order was acknowledged")
    return revenue


def sum_by_country(bootstrap: str) -> dict[str, int]:
    """Read everything as a consumer group of one, and commit."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "revenue", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    revenue = dict.fromkeys(COUNTRIES, 0)
    seen = 0
    while seen < ORDERS:
        messages = consumer.consume(5000, timeout=15)
        if not messages:
            break
        for message in messages:
            order = json.loads(message.value() or b"")
            revenue[order["country"]] += order["cents"]
            seen += 1
    consumer.commit(asynchronous=False)
    consumer.close()
    return revenue


def show(console: Console, expected: dict[str, int], found: dict[str, int]) -> None:
    table = Table("country", "produced", "consumed after the crash", "")
    for country in COUNTRIES:
        same = "[green]equal" if expected[country] == found[country] else "[red]different"
        table.add_row(
            country, f"{expected[country] / 100:,.2f}", f"{found[country] / 100:,.2f}", same
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
