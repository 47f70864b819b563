"""A session finds the source and the sink."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest
from pyspark.sql import SparkSession

from penstock.spark import WriteRequest, activate, record_batches, session
from penstock.spark.spark_session import _ensure_source

MakeTopic: TypeAlias = Callable[..., str]


def test_a_session_has_its_name_and_is_created_once(spark: SparkSession) -> None:
    assert spark.sparkContext.appName == "penstock tests"
    assert session() is spark


class SessionWith:
    """A session in which Spark has found the sources with these names."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self.registered: list[type] = []

    def __getattr__(self, _: str) -> Any:
        return self

    def __call__(self) -> "SessionWith":
        return self

    def dataSourceExists(self, name: str) -> bool:  # noqa: N802 - Spark's name
        return name in self._names

    def register(self, source: type) -> None:
        self.registered.append(source)


@pytest.mark.parametrize(("names", "count"), [((), 1), (("penstock",), 0)])
def test_the_source_is_registered_unless_spark_has_found_it(
    names: tuple[str, ...], count: int
) -> None:
    spark: Any = SessionWith(*names)
    _ensure_source(spark)
    assert [source.__name__ for source in spark.registered] == ["DefaultSource"] * count


def write_nowhere(spark: SparkSession) -> str:
    """Why it is refused: by us, because no broker is given, or by Spark, which has no source."""
    try:
        spark.sql("SELECT 'a' AS value").write.format("penstock").mode("append").save()
    except Exception as refused:  # noqa: BLE001 - Spark raises its own or py4j's
        text = f"{refused} {getattr(refused, 'java_exception', '')}"
        return "found" if "kafka.bootstrap.servers" in text else text
    return "written"


def in_a_thread(work: Callable[[], str]) -> str:
    with ThreadPoolExecutor(max_workers=1) as threads:
        return threads.submit(work).result()


def test_a_thread_without_an_active_session_can_write_after_activation(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)

    def write_without_session() -> str:
        return write_nowhere(spark)

    def write_with_session() -> str:
        return write_nowhere(session())

    def write_when_active() -> str:
        activate(spark)
        return write_nowhere(spark)

    def write_after_record_batches() -> str:
        frame = spark.sql("SELECT 'a' AS value")
        record_batches(frame, WriteRequest(topic, bootstrap=bootstrap))
        return write_nowhere(spark)

    # If Spark finds it one day, `activate` is no longer needed.
    assert "DATA_SOURCE_NOT_FOUND" in in_a_thread(write_without_session)
    assert in_a_thread(write_with_session) == "found"
    assert in_a_thread(write_when_active) == "found"
    assert in_a_thread(write_after_record_batches) == "found"


def test_a_session_over_connect_needs_no_registration() -> None:
    remote: Any = object()
    _ensure_source(remote)
    activate(remote)
