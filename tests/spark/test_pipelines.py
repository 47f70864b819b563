"""The source inside a declarative pipeline, run by Spark's own command."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from confluent_kafka import Producer

from penstock.client.registry import Registry
from penstock.serde.contract import Contract
from penstock.serde.serializers import Serializer
from penstock.spark.source import batch_reader, read_schema

SECONDS_MAX = 540  # a busy machine takes minutes to start what takes seconds
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
PROJECT = """
name: orders
storage: file://{folder}/storage
catalog: spark_catalog
database: default
libraries:
  - glob:
      include: transformations/**
"""
TRANSFORMATION = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def orders():
    return (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", {bootstrap!r})
        .option("subscribe", {topic!r})
        .option("registry", {registry!r})
        .option("startingOffsets", "earliest")
        .option("columns", "id,_offset")
        .load()
    )
"""

SINKS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from penstock.spark import record_batches

spark = SparkSession.active()
brokers = {{"kafka.bootstrap.servers": {bootstrap!r}}}


def rows():
    reader = spark.readStream.format("penstock").options(**brokers, subscribe={topic!r})
    return reader.option("startingOffsets", "earliest").load().select("key", "value")


packed = record_batches(rows(), {laid_out!r}, bootstrap_servers={bootstrap!r})

dp.create_sink("laid_out", "penstock", {{**brokers, "query": {laid_out!r}}})
dp.create_sink("in_one_task", "penstock", {{**brokers, "topic": {one!r}, "query": {one!r}}})


@dp.append_flow(target="laid_out")
def to_laid_out():
    return packed


@dp.append_flow(target="in_one_task")
def to_one():
    return rows().coalesce(1)
"""


def run_pipeline(folder: Path) -> tuple[int, str]:
    """Spark's command, in a session of its own: it starts a JVM that must not outlive it."""
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--remote", "local[2]"],
        cwd=folder,
        env={
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS_MAX)
        return process.returncode, said
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_a_pipeline_reads_a_topic_into_a_table(
    make_topic: Callable[..., str],
    bootstrap: str,
    registry: Registry,
    registry_url: str,
    tmp_path: Path,
) -> None:
    topic = make_topic()
    write = Serializer(registry, topic, Contract(SCHEMA))
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, write.serialize({"id": number}).content)
    assert producer.flush(20) == 0
    (tmp_path / "spark-pipeline.yml").write_text(PROJECT.format(folder=tmp_path))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(
        TRANSFORMATION.format(bootstrap=bootstrap, topic=topic, registry=registry_url)
    )
    returncode, said = run_pipeline(tmp_path)
    assert returncode == 0, said
    files = list(tmp_path.glob("**/orders/*.parquet"))
    ids: list[Any] = [row["id"] for one in files for row in pq.read_table(one).to_pylist()]
    assert sorted(ids) == list(range(10))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_a_pipeline_writes_to_topics(
    make_topic: Callable[..., str], bootstrap: str, tmp_path: Path
) -> None:
    topic, laid_out, one = make_topic(3), make_topic(2), make_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(30):
        producer.produce(topic, str(number), f"key-{number}", partition=number % 3)
    assert producer.flush(20) == 0
    (tmp_path / "spark-pipeline.yml").write_text(PROJECT.format(folder=tmp_path))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "sinks.py").write_text(
        SINKS.format(bootstrap=bootstrap, topic=topic, laid_out=laid_out, one=one)
    )
    returncode, said = run_pipeline(tmp_path)
    assert returncode == 0, said
    for written in (laid_out, one):
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": written}
        reader: Any = batch_reader(options, read_schema(options))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        values = [int(value) for batch in batches for value in batch.column("value").to_pylist()]
        assert sorted(values) == list(range(30))
