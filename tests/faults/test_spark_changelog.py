"""State in a topic: correct after kills before and after a write and without a checkpoint."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.orders import expected, generate, publish
from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry

DRIVER = Path(__file__).parent / "spark_changelog_driver.py"
RUN_S = 1200
ORDERS = 600

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


class Runs:
    """Runs of one query, by processes of its own."""

    def __init__(self, bootstrap: str, registry: str, folder: Path, suffix: str) -> None:
        self.bootstrap = bootstrap
        self.registry = registry
        self.checkpoint = folder / f"checkpoint{suffix}"
        self.suffix = suffix
        self.stderr = folder / f"stderr{suffix}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        names = [f"revenue{suffix}", f"late{suffix}"]
        for made in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
            made.result(20)

    def run(self, *, die: str = "", offsets: int = 200) -> None:
        arguments = {
            "bootstrap": self.bootstrap,
            "registry": self.registry,
            "checkpoint": str(self.checkpoint),
            "suffix": self.suffix,
            "offsets": offsets,
            "die": die,
        }
        with self.stderr.open("ab") as stderr:
            done = subprocess.run(
                [sys.executable, str(DRIVER), json.dumps(arguments)],
                start_new_session=True,
                stdout=stderr,
                stderr=stderr,
                timeout=RUN_S,
                check=False,
            )
        expected_status = -signal.SIGKILL if die else 0
        assert done.returncode == expected_status, self.stderr.read_text()[-4000:]

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def latest(self, kind: str) -> dict[str, str]:
        """The last committed value of each key, without tombstones."""
        values: dict[str, str | None] = {}
        for key, value in committed(self.bootstrap, f"{kind}{self.suffix}"):
            values[(key or b"").decode()] = None if value is None else value.decode()
        return {key: value for key, value in values.items() if value is not None}


def committed(bootstrap: str, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checks",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    ended: set[int | None] = set()
    while len(ended) < 2:
        for message in consumer.consume(1000, timeout=10):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                yield message.key(), message.value()
    consumer.close()


def test_a_query_that_lost_its_checkpoint_continues_with_correct_results(
    tmp_path: Path,
) -> None:
    data = generate(seed=21, orders=ORDERS)
    with EmbeddedBroker() as broker, EmbeddedRegistry(broker.bootstrap) as service:
        publish(data, broker.bootstrap, service.url, partitions=2)
        calm = Runs(broker.bootstrap, service.url, tmp_path, "-calm")
        shaken = Runs(broker.bootstrap, service.url, tmp_path, "-shaken")
        calm.run()

        shaken.run(die="before:1")
        shaken.run(die="after:2")  # the same checkpoint: Spark's own state, and a batch run again
        shaken.lose_checkpoint()
        shaken.run(die="before:0", offsets=100)
        shaken.lose_checkpoint()
        shaken.run(die="after:0", offsets=100)
        shaken.run()  # batch 0 again, on its checkpoint: the topic has it already
        shaken.lose_checkpoint()

        late = [
            dataclasses.replace(order, order_id=f"late-{number}", cents=10**9)
            for number, order in enumerate(data.orders[:20])
        ]
        publish(
            dataclasses.replace(data, orders=tuple(late), payments=(), bad_events=()),
            broker.bootstrap,
            service.url,
        )
        calm.run()
        shaken.run()  # a new checkpoint, and the watermark that there was

        revenue = {
            f"{start} {country}": f"{sum_.orders} {sum_.cents}"
            for (start, country), sum_ in expected(data).revenue.items()
        }
        assert calm.latest("revenue") == revenue
        assert shaken.latest("revenue") == revenue
        assert shaken.latest("state") == calm.latest("state")
        assert shaken.latest("late") == calm.latest("late")
        assert sum(int(text.split()[1]) for text in shaken.latest("late").values()) == 20 * 10**9
