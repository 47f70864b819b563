"""Fixtures for tests on Spark: one session, broker and registry for the whole run.

Each test has its own topics and subjects.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from penstock.client.registry import Registry
from penstock.link.blocking import BlockingCluster
from penstock.spark import WriteRequest, activate, session
from penstock.spark.connections import cluster_for
from penstock.testing.embedded import EmbeddedBroker
from penstock.testing.platform import Platform
from tests.support.source_topic import SourceTopic
from tests.support.task_sink import TaskSink

MakeTopic: TypeAlias = Callable[..., str]
_TEST_S = 400  # the first test of a worker starts Spark, on a machine that may be busy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A generous time-out: a call of Spark that is interrupted breaks its thread for others."""
    for item in items:
        is_here = item.path.is_relative_to(Path(__file__).parent)
        if is_here and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_TEST_S))


@pytest.fixture(scope="session")
def broker(penstock: Platform) -> EmbeddedBroker:
    """For tests that break it."""
    return penstock.broker


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
    """A test that timed out may have ended its thread of the JVM."""
    if "spark" in request.fixturenames:
        activate(request.getfixturevalue("spark"))


@pytest.fixture
def topic(make_topic: MakeTopic, bootstrap: str, registry: Registry) -> SourceTopic:
    return SourceTopic(make_topic(), bootstrap, registry)


@pytest.fixture
def cluster(bootstrap: str) -> BlockingCluster:
    return cluster_for(WriteRequest(bootstrap=bootstrap).properties)


@pytest.fixture
def sink(bootstrap: str, make_topic: MakeTopic) -> TaskSink:
    return TaskSink(bootstrap, make_topic(2))
