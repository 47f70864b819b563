"""Windows and joins over streams, compared with plain Python over the same events.

The streams are read from files: only windows and joins are tested here.
"""

import json
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.spark import TimedStream, join_within, sessions, sliding, tumbling

Rows: TypeAlias = list[dict[str, Any]]
Stream: TypeAlias = Callable[[str, list[Rows]], DataFrame]
MINUTE = 60


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """A stream with one micro-batch for each list of rows; columns `at` in seconds."""

    def make(columns: str, batches: list[Rows]) -> DataFrame:
        folder = tmp_path / f"stream-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for number, rows in enumerate(batches):
            lines = "\n".join(json.dumps(row) for row in rows)
            file = folder / f"{number:04}.json"
            file.write_text(lines)
            os.utime(file, (number, number))  # Spark reads files in the order of their times
        events = spark.readStream.schema(columns).option("maxFilesPerTrigger", "1")
        return events.json(str(folder))

    return make


def run(events: DataFrame, folder: Path, mode: str = "append") -> Rows:
    """All rows that a query gives, in the order of its batches."""
    rows: Rows = []

    def take(batch: DataFrame, _: int) -> None:
        rows.extend(row.asDict() for row in batch.collect())

    query = (
        events.writeStream.outputMode(mode)
        .foreachBatch(take)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows


def seconds(moment: datetime) -> int:
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())


def sales(seed: int, count: int) -> Rows:
    rng = random.Random(seed)
    return [
        {"at": number * 20 + rng.randrange(60), "shop": rng.choice("ab"), "cents": number}
        for number in range(count)
    ]


def timed(events: DataFrame, name: str = "at") -> DataFrame:
    return events.withColumn(name, sf.timestamp_seconds(name))


def test_tumbling_windows_of_a_stream_are_those_of_plain_python(
    stream: Stream, tmp_path: Path
) -> None:
    rows = sales(1, 300)
    events = timed(
        stream("at long, shop string, cents long", [rows[:100], rows[100:150], rows[150:]])
    )
    windows = tumbling(
        events, "at", "10 minutes", lateness="5 minutes", by=["shop"],
        cents=sf.sum("cents"), sales=sf.count("*"),
    )  # fmt: skip
    updates = run(windows, tmp_path, "update")
    latest = {(seconds(row["window_start"]), row["shop"]): row["cents"] for row in updates}
    expected: dict[tuple[int, str], int] = {}
    for row in rows:
        window = (row["at"] - row["at"] % (10 * MINUTE), row["shop"])
        expected[window] = expected.get(window, 0) + row["cents"]
    assert latest == expected
    assert set(updates[0]) == {"window_start", "window_end", "shop", "cents", "sales"}


@pytest.mark.slow
def test_an_event_is_in_every_sliding_window_that_contains_it(
    stream: Stream, tmp_path: Path
) -> None:
    rows = sales(2, 200)
    events = timed(stream("at long, shop string, cents long", [rows[:90], rows[90:]]))
    windows = sliding(
        events, "at", "10 minutes", "5 minutes", lateness="5 minutes", cents=sf.sum("cents")
    )
    latest = {
        seconds(row["window_start"]): row["cents"] for row in run(windows, tmp_path, "update")
    }
    expected: dict[int, int] = {}
    for row in rows:
        last = row["at"] - row["at"] % (5 * MINUTE)
        for start in (last, last - 5 * MINUTE):
            expected[start] = expected.get(start, 0) + row["cents"]
    assert latest == expected


@pytest.mark.slow
def test_a_session_ends_after_a_gap_without_events(stream: Stream, tmp_path: Path) -> None:
    bursts = [[0, 30, 50], [400, 420], [430, 1000], [5000]]
    rows = [[{"at": at, "who": "x"} for at in burst] for burst in bursts]
    events = timed(stream("at long, who string", rows))
    windows = sessions(
        events, "at", "2 minutes", lateness="1 minute", by=["who"], events=sf.count("*")
    )
    ended = sorted(
        (seconds(row["window_start"]), seconds(row["window_end"]), row["events"])
        for row in run(windows, tmp_path)
    )
    assert ended == [(0, 170, 3), (400, 550, 3), (1000, 1120, 1)]  # the last is still open


@pytest.mark.slow
def test_streams_are_joined_within_their_bounds_for_any_batches(
    stream: Stream, tmp_path: Path
) -> None:
    orders = [{"id": n, "at": n * 10} for n in range(60)]
    payments = [{"id": n, "paid_at": n * 10 + (n % 7) * 15 - 15} for n in range(60) if n % 3]
    left = timed(stream("id long, at long", [orders[:5], orders[5:]]))
    right = timed(stream("id long, paid_at long", [payments[:30], payments[30:]]), "paid_at")
    joined = join_within(
        TimedStream(left, "at", "2 minutes"), TimedStream(right, "paid_at", "2 minutes"),
        on=["id"], within="1 minute",
    )  # fmt: skip
    assert joined.columns == ["id", "at", "paid_at"]
    ids = sorted(row["id"] for row in run(joined, tmp_path))
    expected = [row["id"] for row in payments if 0 <= row["paid_at"] - row["id"] * 10 <= MINUTE]
    assert ids == sorted(expected)
    assert 0 < len(ids) < len(payments)


@pytest.mark.slow
def test_an_order_without_payment_is_emitted_after_its_bounds(
    stream: Stream, tmp_path: Path
) -> None:
    orders: list[Rows] = [[{"id": 1, "at": 10}, {"id": 2, "at": 15}], [{"id": 9, "at": 5000}]]
    payments: list[Rows] = [[{"id": 1, "paid_at": 20}], [{"id": 9, "paid_at": 5001}]]
    left = timed(stream("id long, at long", orders))
    right = timed(stream("id long, paid_at long", payments), "paid_at")
    joined = join_within(
        TimedStream(left, "at", "1 minute"), TimedStream(right, "paid_at", "1 minute"),
        on=["id"], within="1 minute", how="left_outer",
    )  # fmt: skip
    is_paid = {row["id"]: row["paid_at"] is not None for row in run(joined, tmp_path)}
    assert is_paid == {1: True, 2: False, 9: True}


def test_invalid_windows_and_joins_are_refused(spark: SparkSession) -> None:
    left = TimedStream(spark.range(1).selectExpr("id", "now() at", "1 x"), "at", "1 minute")
    right = TimedStream(
        spark.range(1).selectExpr("id", "now() paid_at", "2 x"), "paid_at", "1 minute"
    )
    with pytest.raises(ValueError, match="both streams have x"):
        join_within(left, right, on=["id"], within="1 minute")
    with pytest.raises(ValueError, match="left stream has no column order"):
        join_within(left, right, on=["order"], within="1 minute")
    with pytest.raises(ValueError, match="name the columns that both streams share"):
        join_within(left, right, on=[], within="1 minute")
    with pytest.raises(ValueError, match="no aggregate"):
        tumbling(left.events, "at", "1 hour", lateness="1 minute")
    with pytest.raises(ValueError, match="sessions need a key"):
        sessions(left.events, "at", "1 hour", lateness="1 minute", by=[], n=sf.count("*"))
