"""What a session of ours has."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest
from pyspark.sql import SparkSession

from penstock.spark import record_batches
from penstock.spark.session import _ensure_source, activate, session

MakeTopic: TypeAlias = Callable[..., str]


def test_a_session_has_its_name_and_is_the_one_that_runs(spark: SparkSession) -> None:
    assert spark.sparkContext.appName == "penstock tests"
    assert session() is spark


class Found:
    """A session, as far as it is asked what Spark has found in it."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self.registered: list[type] = []

    def __getattr__(self, _: str) -> Any:
        return self

    def __call__(self) -> "Found":
        return self

    def dataSourceExists(self, name: str) -> bool:
        return name in self._names

    def register(self, source: type) -> None:
        self.registered.append(source)


@pytest.mark.parametrize(("names", "count"), [((), 1), (("penstock",), 0)])
def test_the_source_is_registered_unless_spark_has_found_it(
    names: tuple[str, ...], count: int
) -> None:
    spark: Any = Found(*names)
    _ensure_source(spark)
    assert [source.__name__ for source in spark.registered] == ["DefaultSource"] * count


def write_nowhere(spark: SparkSession) -> str:
    """Why it is refused: by us, for want of brokers, or by Spark, which does not know us."""
    try:
        spark.sql("SELECT 'a' AS value").write.format("penstock").mode("append").save()
    except Exception as refused:  # noqa: BLE001 - Spark's and py4j's, by what went wrong
        told = f"{refused} {getattr(refused, 'java_exception', '')}"
        return "found" if "kafka.bootstrap.servers" in told else told
    return "written"


def in_a_thread(work: Callable[[], str]) -> str:
    with ThreadPoolExecutor(max_workers=1) as threads:
        return threads.submit(work).result()


def test_a_thread_that_spark_has_no_session_in_writes_once_it_has_ours(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)

    def write_as_it_is() -> str:
        return write_nowhere(spark)

    def write_with_session() -> str:
        return write_nowhere(session())

    def write_when_active() -> str:
        activate(spark)
        return write_nowhere(spark)

    def write_after_record_batches() -> str:
        record_batches(spark.sql("SELECT 'a' AS value"), topic, bootstrap_servers=bootstrap)
        return write_nowhere(spark)

    # Should Spark ever find it by itself, `activate` is not needed any longer.
    assert "DATA_SOURCE_NOT_FOUND" in in_a_thread(write_as_it_is)
    assert in_a_thread(write_with_session) == "found"
    assert in_a_thread(write_when_active) == "found"
    assert in_a_thread(write_after_record_batches) == "found"


def test_a_session_over_connect_is_left_to_its_server() -> None:
    remote: Any = object()
    _ensure_source(remote)
    activate(remote)
