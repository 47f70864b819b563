"""Queries report their progress to a topic, which the console reads."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from penstock.model import Millis
from penstock.spark import pipeline_listener, report_pipelines
from penstock.spark.pipeline_listener import QueryReports

LATEST = {"offsets": {"orders": {"0": 10, "1": 4}}}
END = {"offsets": {"orders": {"0": 7, "1": 4}}}


def progress(batch: int) -> dict[str, Any]:
    return {
        "id": "q",
        "runId": "r",
        "name": "totals",
        "batchId": batch,
        "inputRowsPerSecond": 2.0,
        "processedRowsPerSecond": 4.0,
        "eventTime": {"watermark": "2026-11-18T02:00:00.000Z"},
        "sources": [{"endOffset": END, "latestOffset": LATEST}, {"description": "rate"}],
    }


def test_a_report_has_what_spark_says_of_a_trigger() -> None:
    reports = QueryReports()
    assert reports.started("q", "r", "totals", Millis(0)).state == "running"
    report = reports.progressed(progress(1), Millis(60_000))
    assert (report.batch, report.lag, report.watermark) == (1, 3, "2026-11-18T02:00:00.000Z")
    assert (report.input_rate, report.processed_rate, report.interval_ms) == (2.0, 4.0, 60_000)
    idle = reports.idle("q", "r", Millis(70_000))
    assert idle is not None
    assert (idle.updated, idle.input_rate, idle.batch) == (70_000, 0.0, 1)
    assert reports.idle("q", "other", Millis(1)) is None
    failed = reports.ended("q", "r", "it broke", Millis(80_000))
    assert (failed.state, failed.last_error, failed.name) == ("failed", "it broke", "totals")
    assert reports.ended("unknown", "r", None, Millis(1)).state == "stopped"


def test_a_session_reports_once_to_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    monkeypatch.setattr(
        pipeline_listener, "report_pipelines", lambda _, bootstrap: reports.append(bootstrap)
    )
    first, second = object.__new__(SparkSession), object.__new__(SparkSession)
    for spark, bootstrap in ((first, "a:1"), (first, "a:1"), (first, "b:1"), (second, "a:1")):
        pipeline_listener.report_once(spark, bootstrap)
    assert reports == ["a:1", "b:1", "a:1"]


@pytest.mark.slow
def test_a_running_query_is_shown_by_the_console(
    spark: SparkSession,
    make_topic: Callable[..., str],
    bootstrap: str,
    registry_url: str,
    tmp_path: Path,
) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(topic, b"x")
    assert producer.flush(20) == 0
    listener = report_pipelines(spark, bootstrap)
    try:
        stream = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
        frame = stream.option("subscribe", topic).option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("noop").queryName(f"totals-{topic}")
        writer = writer.option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        deadline = time.monotonic() + 30
        row: dict[str, Any] = {}
        while row.get("state") != "stopped" and time.monotonic() < deadline:
            rows = httpx.get(f"{registry_url}/pipelines").json()["pipelines"]
            row = {each["name"]: each for each in rows}.get(f"totals-{topic}", {})
            time.sleep(0.3)
        assert (row["state"], row["batch"], row["lag"]) == ("stopped", "0", "0")
        assert row["last_error"] is None
    finally:
        spark.streams.removeListener(listener)
