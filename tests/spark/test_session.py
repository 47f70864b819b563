"""What a session of ours has."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.spark.session import _ensure_source, session


def test_a_session_has_its_name_and_is_the_one_that_runs(spark: SparkSession) -> None:
    assert spark.sparkContext.appName == "penstock tests"
    assert session() is spark


def test_the_source_is_registered_unless_spark_has_found_it() -> None:
    asked: list[type] = []

    def register(source: type, *, refusal: str | None = None) -> None:
        asked.append(source)
        if refusal is not None:
            raise RuntimeError(refusal)

    def spark(refusal: str | None) -> Any:
        return SimpleNamespace(
            dataSource=SimpleNamespace(register=lambda source: register(source, refusal=refusal))
        )

    _ensure_source(spark(None))
    _ensure_source(spark("[DATA_SOURCE_ALREADY_EXISTS] Data source 'penstock' already exists."))
    assert [source.__name__ for source in asked] == ["DefaultSource", "DefaultSource"]
    with pytest.raises(RuntimeError, match="no gateway"):
        _ensure_source(spark("no gateway"))
