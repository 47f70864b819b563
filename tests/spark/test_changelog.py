"""Keyed state in a topic: a checkpoint is deleted, and the results stay correct."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.errors import Refused
from penstock.spark import Changelog, Output, WriteRequest, count, maximum, table, total

MakeTopic = Callable[..., str]
NOW = {"availableNow": True}


def produce(bootstrap: str, topic: str, words: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for word in words:
        producer.produce(topic, word, word[:1])
    assert producer.flush(20) == 0


def changelog(spark: SparkSession, bootstrap: str, topic: str) -> Changelog:
    options = {"kafka.bootstrap.servers": bootstrap}
    return Changelog(spark, f"{topic}.state", query=topic, options=options, partitions=2)


def words(log: Changelog, topic: str) -> DataFrame:
    rows = log.read(subscribe=topic, columns="value,topic,partition,offset")
    return rows.withColumn("word", sf.col("value").cast("string")).withColumn(
        "length", sf.length("word")
    )


def letters(update: Callable[[list[str]], dict[str, Any] | None]) -> Any:
    """A state of any form: the words of a letter, in their order."""

    def run(state: dict[str, Any] | None, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        words = [] if state is None else list(state["words"])
        return update([*words, *(row["word"] for row in rows)])

    return run


@pytest.mark.slow
def test_totals_continue_after_the_checkpoint_was_deleted(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, output = make_topic(2), make_topic(1)
    first, second = ["ab", "abc", "b"], ["a", "bcd", "cc"]
    for number, some in enumerate((first, second)):
        produce(bootstrap, topic, some)
        log = changelog(spark, bootstrap, topic)
        events = words(log, topic).withColumn("letter", sf.substring("word", 1, 1))
        states = log.keyed(
            events, by=["letter"], n=count(), size=total("length"), longest=maximum("word")
        )
        query = states.start(
            tmp_path / f"checkpoint-{number}",
            trigger=NOW,
            outputs=[Output(WriteRequest(output), rows=as_text)],
        )
        assert query.awaitTermination(600)
    rows = table(spark, output, {"kafka.bootstrap.servers": bootstrap}).collect()
    texts = {bytes(row["key"]).decode(): bytes(row["value"]).decode() for row in rows}
    assert texts == {"a": "3 6 abc", "b": "2 4 bcd", "c": "1 2 cc"}
    assert changelog(spark, bootstrap, topic).stored.offsets


def as_text(changes: DataFrame) -> DataFrame:
    return changes.select(
        sf.col("letter").alias("key"), sf.concat_ws(" ", "n", "size", "longest").alias("value")
    )


@pytest.mark.slow
def test_state_of_any_form_is_stored_and_removed_by_the_users_function(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)

    def update(words: list[str]) -> dict[str, Any] | None:
        return None if words[-1].endswith("stop") else {"words": words, "n": len(words)}

    for some in (["a1", "b1", "a2"], ["a3", "bstop", "c1"], ["b2", "a4"]):
        produce(bootstrap, topic, some)
        log = changelog(spark, bootstrap, topic)
        events = words(log, topic).withColumn("letter", sf.substring("word", 1, 1))
        states = log.updated(
            events, letters(update), by=["letter"], state="words array<string>, n long"
        )
        query = states.start(tmp_path / "checkpoint", trigger=NOW)
        assert query.awaitTermination(600)
        shutil.rmtree(tmp_path / "checkpoint")
    rows = table(spark, f"{topic}.state", {"kafka.bootstrap.servers": bootstrap}).collect()
    texts = {bytes(row["key"]).decode(): bytes(row["value"]).decode() for row in rows}
    assert {key: value for key, value in texts.items() if '"kind":"state"' in key} == {
        '{"kind":"state","key":{"letter":"a"}}': '{"words":["a1","a2","a3","a4"],"n":4}',
        '{"kind":"state","key":{"letter":"b"}}': '{"words":["b2"],"n":1}',
        '{"kind":"state","key":{"letter":"c"}}': '{"words":["c1"],"n":1}',
    }


def test_an_invalid_state_is_refused(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    log = changelog(spark, bootstrap, topic)
    events = words(log, topic)
    with pytest.raises(Refused, match="no column colour"):
        log.keyed(events, by=["colour"], n=count())
    with pytest.raises(Refused, match="needs a key"):
        log.keyed(events, by=["word"])
    with pytest.raises(Refused, match="it has no total"):
        log.keyed(events, by=["length"], n=total("word"))
    with pytest.raises(Refused, match="read them as `columns`"):
        log.keyed(events.drop("offset"), by=["word"], n=count())
    with pytest.raises(Refused, match="multiple of the interval"):
        log.windows(
            events, "word", "1 hour", lateness="1 minute", by=["word"], every="7 minutes", n=count()
        )
