"""The source and the sink in a declarative pipeline, run by Spark's own command."""

import json
import os
import re
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

SECONDS_MAX = 540  # on a busy machine the start takes minutes instead of seconds
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

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-sink.md"
IN_A_PIPELINE = re.compile(r"^```python in a pipeline\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ONE_TASK = """
dp.create_sink("one_task", "penstock", {{**brokers, "topic": {topic!r}, "query": {topic!r}}})


@dp.append_flow(target="one_task")
def to_one_task():
    return orders.select("key", "value").coalesce(1)
"""


def run_pipeline(folder: Path) -> tuple[int, str]:
    """Run Spark's command in its own process group: it starts a JVM that must not outlive it."""
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
        output, _ = process.communicate(timeout=SECONDS_MAX)
        return process.returncode, output
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
    returncode, output = run_pipeline(tmp_path)
    assert returncode == 0, output
    files = list(tmp_path.glob("**/orders/*.parquet"))
    ids: list[Any] = [row["id"] for file in files for row in pq.read_table(file).to_pylist()]
    assert sorted(ids) == list(range(10))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_a_pipeline_writes_to_topics(
    make_topic: Callable[..., str], bootstrap: str, tmp_path: Path
) -> None:
    topic, copy, one_task = make_topic(3), make_topic(2), make_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(30):
        producer.produce(topic, str(number), f"key-{number}", partition=number % 3)
    assert producer.flush(20) == 0
    (tmp_path / "spark-pipeline.yml").write_text(PROJECT.format(folder=tmp_path))
    (tmp_path / "transformations").mkdir()
    (program,) = IN_A_PIPELINE.findall(PAGE.read_text())
    for shown, real in (
        ("127.0.0.1:9092", bootstrap),
        ('subscribe="orders"', f'subscribe="{topic}"'),
        ('WriteRequest("copy"', f'WriteRequest("{copy}"'),
        ("orders-copy", copy),
    ):
        assert shown in program
        program = program.replace(shown, real)
    (tmp_path / "transformations" / "sinks.py").write_text(
        program + ONE_TASK.format(topic=one_task)
    )
    returncode, output = run_pipeline(tmp_path)
    assert returncode == 0, output
    for written in (copy, one_task):
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": written}
        reader: Any = batch_reader(options, read_schema(options))
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        values = [int(value) for batch in batches for value in batch.column("value").to_pylist()]
        assert sorted(values) == list(range(30))
