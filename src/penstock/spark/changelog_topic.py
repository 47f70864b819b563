"""The topic that stores a query's state: compacted, one record for each fact.

    key   {"kind":"state","key":{"country":"DE"},"window_us":1767225600000000}
    value {"orders":12,"cents":48100}                     null once the window is over

    key   {"kind":"offset","topic":"orders","partition":3}     value {"_end":5120}
    key   {"kind":"clock"}                                     value {"_newest":1767247199000000}

JSON as Spark writes it, so that any Kafka tool can show it and only the types of the query are
needed to read it. All records of a micro-batch are in one transaction: a read_committed reader sees
the state, the offsets and the time of one and the same moment.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from penstock.link.offsets import Isolation
from penstock.link.settings import client_settings, librdkafka_settings
from penstock.model import Offset, TopicPartition
from penstock.spark import positions
from penstock.spark.connections import BOOTSTRAP, cluster_for
from penstock.spark.partial_aggregates import (
    CLOCK,
    END,
    KIND,
    NEWEST,
    OFFSET,
    PARTITION,
    STATE,
    WINDOW,
)
from penstock.spark.read_options import TopicSelection

ID: Final = "_id"
REMOVED: Final = "_removed"
_ADMIN_S: Final = 30
# JSON has no times: to the microsecond, both ways.
JSON_FORMAT: Final[dict[str, str]] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True, slots=True)
class StoredState:
    """What the topic has of its query: how far it had read, and the newest event time it saw."""

    offsets: Mapping[TopicPartition, Offset]
    newest_us: int | None
    states: DataFrame  # (key, value) texts of all records


def create_topic(properties: Mapping[str, str], topic: str, partitions: int) -> None:
    """Create the topic unless it exists."""
    admin = AdminClient(client_settings(properties[BOOTSTRAP], librdkafka_settings(properties)))
    if topic in admin.list_topics(timeout=_ADMIN_S).topics:
        return
    compacted = NewTopic(topic, num_partitions=partitions, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([compacted])[topic].result(_ADMIN_S)
    except KafkaException as failure:
        if failure.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise


def read_stored(spark: SparkSession, properties: Mapping[str, str], topic: str) -> StoredState:
    """What the topic has now. The states are read when they are used, up to the present end."""
    cluster = cluster_for(properties)
    partitions = positions.select_partitions(cluster, TopicSelection((topic,)))
    end = positions.end_position(cluster, partitions, Isolation.READ_COMMITTED)
    reader = spark.read.format("penstock").option("subscribe", topic)
    reader = reader.option("endingOffsets", json.dumps(end.to_spark()["offsets"]))
    reader = reader.option("columns", "key,value,offset")
    for name, value in properties.items():
        reader = reader.option(f"kafka.{name}", value)
    latest = (
        reader.load()
        .groupBy("key")
        .agg(sf.max_by("value", "offset").alias("value"))
        .where(sf.col("value").isNotNull())
        .select(sf.col("key").cast("string"), sf.col("value").cast("string"))
    )
    rows = latest.where(~sf.col("key").startswith(_key_prefix(STATE))).collect()
    offsets: dict[TopicPartition, Offset] = {}
    newest_us: int | None = None
    for row in rows:
        key, value = json.loads(row["key"]), json.loads(row["value"])
        if key["kind"] == OFFSET:
            offsets[TopicPartition(key["topic"], key["partition"])] = Offset(value[END])
        elif key["kind"] == CLOCK:
            newest_us = value[NEWEST]
    return StoredState(offsets, newest_us, latest)


def initial_states(stored: StoredState, state: StructType) -> Any:
    """The states as `transformWithState` takes them.

    States of windows that are over are among them: they are removed once Spark's watermark has
    passed them, and that is how their records are deleted.
    """
    parsed = sf.from_json("value", state, JSON_FORMAT)
    window = sf.get_json_object("key", "$.window_us").cast("long")
    return stored.states.select(
        sf.get_json_object("key", "$.kind").alias(KIND),
        sf.col("key").alias(ID),
        *[
            window.alias(WINDOW) if name == WINDOW else parsed[name].alias(name)
            for name in state.names
        ],
    ).groupBy(KIND, ID)


def record_key(keys: tuple[str, ...]) -> Column:
    """The record key of a row of `partials`."""
    kind = sf.col(KIND)
    state = sf.struct(
        kind.alias("kind"), sf.struct(*keys).alias("key"), sf.col(WINDOW).alias("window_us")
    )
    partition = sf.struct(
        kind.alias("kind"),
        sf.col(PARTITION[0]).alias("topic"),
        sf.col(PARTITION[1]).alias("partition"),
    )
    clock = sf.struct(kind.alias("kind"))
    return (
        sf.when(kind == STATE, sf.to_json(state, JSON_FORMAT))
        .when(kind == OFFSET, sf.to_json(partition))
        .otherwise(sf.to_json(clock))
    )


def records(changes: DataFrame, state: StructType) -> DataFrame:
    """Changes as records of the topic."""
    columns = [sf.col(name) for name in state.names if name != WINDOW]
    value = sf.when(~sf.col(REMOVED), sf.to_json(sf.struct(*columns), JSON_FORMAT))
    return changes.select(sf.col(ID).alias("key"), value.alias("value"))


def _key_prefix(kind: str) -> str:
    return f'{{"kind":"{kind}"'
