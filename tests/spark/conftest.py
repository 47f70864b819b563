"""For tests on Spark: one session for the whole run, and the run's broker and registry.

Each test has topics and subjects of its own.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from penstock.client.registry import Registry
from penstock.spark.session import activate, session
from penstock.testing.embedded import EmbeddedBroker
from penstock.testing.platform import Platform

MakeTopic: TypeAlias = Callable[..., str]
_TEST_S = 400  # the first of a worker starts Spark, on a machine that may be busy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time enough: a call of Spark's that is cut short spoils its thread for the tests after it."""
    for one in items:
        if one.path.is_relative_to(Path(__file__).parent) and not one.get_closest_marker("timeout"):
            one.add_marker(pytest.mark.timeout(_TEST_S))


@pytest.fixture(scope="session")
def broker(penstock: Platform) -> EmbeddedBroker:
    """For tests that break it."""
    return penstock.broker


@pytest.fixture(scope="session")
def bootstrap(penstock: Platform) -> str:
    return penstock.bootstrap


@pytest.fixture(scope="session")
def registry_url(penstock: Platform) -> str:
    return penstock.registry_url


@pytest.fixture
def registry(registry_url: str) -> Iterator[Registry]:
    with Registry(registry_url, client="tests") as registry:
        yield registry


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer (make java)")
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


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> None:
    """A test that ran out of time may have taken its thread of the JVM with it."""
    if "spark" in request.fixturenames:
        activate(request.getfixturevalue("spark"))


@pytest.fixture
def make_topic(penstock: Platform) -> MakeTopic:
    """Makes a topic with so many partitions."""

    def make(partitions: int = 1, **settings: str) -> str:
        return penstock.make_topic(partitions=partitions, settings=settings)

    return make
