"""How far a stream is behind, from the progress that Spark reports."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from penstock.spark import offsets_behind


def source(end: Any, latest: Any) -> Any:
    return {"endOffset": end, "latestOffset": latest}


def position(**partitions: int) -> dict[str, Any]:
    return {"offsets": {"orders": {name[1:]: at for name, at in partitions.items()}}}


def test_lag_is_over_all_partitions_and_new_ones_count_from_their_start() -> None:
    lag = {
        "avgOffsetsBehindLatest": "4.0",
        "maxOffsetsBehindLatest": "7",
        "minOffsetsBehindLatest": "0",
    }
    end, latest = position(p0=3, p1=5), position(p0=8, p1=5, p2=7)
    assert offsets_behind(source(end, latest)) == lag
    texts = source(json.dumps(end), json.dumps(latest))
    assert offsets_behind(texts) == lag
    assert offsets_behind(SimpleNamespace(**texts)) == lag


@pytest.mark.parametrize(
    ("end", "latest"), [(None, None), (None, position(p0=1)), ("-", "-"), ("3", "4"), ({}, {})]
)
def test_a_source_of_another_format_or_before_its_first_batch_has_no_lag(
    end: Any, latest: Any
) -> None:
    assert offsets_behind(source(end, latest)) == {}


def test_the_progress_of_a_running_query_shows_its_lag(
    spark: SparkSession, make_topic: Callable[..., str], bootstrap: str, tmp_path: Path
) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(topic, b"x")
    assert producer.flush(20) == 0
    stream = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
    frame = stream.option("maxOffsetsPerTrigger", "6").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    lags = [offsets_behind(row) for batch in query.recentProgress for row in batch.sources]
    assert [lag["maxOffsetsBehindLatest"] for lag in lags] == ["4", "0"]
