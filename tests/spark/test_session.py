"""What a session of ours has."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.spark.session import _ensure_source, session


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
