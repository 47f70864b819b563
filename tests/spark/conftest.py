"""For tests on Spark: one session, one broker and one registry for the whole run.

Each test has topics and subjects of its own.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeAlias

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from penstock.client.registry import Registry
from penstock.spark.session import session
from penstock.testing.embedded import EmbeddedBroker
from penstock.testing.registry_process import EmbeddedRegistry

MakeTopic: TypeAlias = Callable[..., str]


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(broker: EmbeddedBroker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def registry_url(bootstrap: str) -> Iterator[str]:
    with EmbeddedRegistry(bootstrap) as registry:
        yield registry.url


@pytest.fixture
def registry(registry_url: str) -> Iterator[Registry]:
    with Registry(registry_url, client="tests") as registry:
        yield registry


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    spark = session(
        "penstock tests",
        master="local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.driver.memory": "1g",
        },
    )
    yield spark
    spark.stop()


_names = count(1)


@pytest.fixture
def make_topic(bootstrap: str) -> MakeTopic:
    """Makes a topic with so many partitions."""

    def make(partitions: int = 1, **settings: str) -> str:
        name = f"topic-{next(_names)}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([wanted])[name].result(20)
        return name

    return make
