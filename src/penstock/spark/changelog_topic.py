"""The topic that a query's state is in: compacted, one record for each thing that is known.

    key   {"kind":"state","key":{"country":"DE"},"window_us":1767225600000000}
    value {"orders":12,"cents":48100}                     null once the window is over

    key   {"kind":"offset","topic":"orders","partition":3}     value {"_end":5120}
    key   {"kind":"clock"}                                     value {"_newest":1767247199000000}

JSON as Spark writes it, so that any Kafka tool can look and nothing but the types of the query is
needed to read it. All records of a micro-batch are in one transaction: whoever reads what was
committed sees the state, the offsets and the time of one and the same moment.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.link.offsets import Isolation
from penstock.link.settings import client_settings, librdkafka_settings
from penstock.model import Offset, TopicPartition
from penstock.spark import positions
from penstock.spark.connections import BOOTSTRAP, cluster
from penstock.spark.partial_aggregates import CLOCK, END, KIND, NEWEST, OFFSET, PLACE, STATE, WINDOW
from penstock.spark.read_options import Topics

ID: Final = "_id"
GONE: Final = "_gone"
_ADMIN_S: Final = 30
# As JSON has no times: to the microsecond, both ways.
JSON_FORMAT: Final[dict[str, str]] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True, slots=True)
class Known:
    """What the topic says of its query: how far it had read, and the newest event time it saw."""

    offsets: Mapping[TopicPartition, Offset]
    newest_us: int | None
    states: DataFrame  # (key, value) texts of everything that is known


def make_topic(properties: Mapping[str, str], topic: str, partitions: int) -> None:
    """Make the topic unless it is there."""
    admin = AdminClient(client_settings(properties[BOOTSTRAP], librdkafka_settings(properties)))
    if topic in admin.list_topics(timeout=_ADMIN_S).topics:
        return
    wanted = NewTopic(topic, num_partitions=partitions, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([wanted])[topic].result(_ADMIN_S)
    except KafkaException as failure:
        if failure.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise


def read_known(spark: SparkSession, properties: Mapping[str, str], topic: str) -> Known:
    """What the topic says now. The states are read when they are needed, as they were now."""
    brokers = cluster(properties)
    places = positions.selected(brokers, Topics((topic,)))
    ends = positions.ends(brokers, places, Isolation.READ_COMMITTED)
    told = ends.to_spark()["offsets"]
    reader = spark.read.format("penstock").option("subscribe", topic)
    reader = reader.option("endingOffsets", json.dumps(told)).option("columns", "key,value,offset")
    for name, value in properties.items():
        reader = reader.option(f"kafka.{name}", value)
    latest = (
        reader.load()
        .groupBy("key")
        .agg(F.max_by("value", "offset").alias("value"))
        .where(F.col("value").isNotNull())
        .select(F.col("key").cast("string"), F.col("value").cast("string"))
    )
    rows = latest.where(~F.col("key").startswith(_start_of(STATE))).collect()
    offsets: dict[TopicPartition, Offset] = {}
    newest_us: int | None = None
    for row in rows:
        key, value = json.loads(row["key"]), json.loads(row["value"])
        if key["kind"] == OFFSET:
            place = TopicPartition(key["topic"], key["partition"])
            offsets[place] = Offset(value[END])
        elif key["kind"] == CLOCK:
            newest_us = value[NEWEST]
    return Known(offsets, newest_us, latest)


def initial_states(known: Known, state: StructType) -> Any:
    """The states as `transformWithState` takes them.

    Those of windows that are over are among them: once Spark's watermark has passed them they are
    dropped, and that is how their records are deleted.
    """
    parsed = F.from_json("value", state, JSON_FORMAT)
    window = F.get_json_object("key", "$.window_us").cast("long")
    return known.states.select(
        F.get_json_object("key", "$.kind").alias(KIND),
        F.col("key").alias(ID),
        *[
            window.alias(WINDOW) if name == WINDOW else parsed[name].alias(name)
            for name in state.names
        ],
    ).groupBy(KIND, ID)


def identity(keys: tuple[str, ...]) -> Column:
    """The record's key of a row of `partials`."""
    kind = F.col(KIND)
    state = F.struct(
        kind.alias("kind"), F.struct(*keys).alias("key"), F.col(WINDOW).alias("window_us")
    )
    place = F.struct(
        kind.alias("kind"), F.col(PLACE[0]).alias("topic"), F.col(PLACE[1]).alias("partition")
    )
    alone = F.struct(kind.alias("kind"))
    return (
        F.when(kind == STATE, F.to_json(state, JSON_FORMAT))
        .when(kind == OFFSET, F.to_json(place))
        .otherwise(F.to_json(alone))
    )


def records(changes: DataFrame, state: StructType) -> DataFrame:
    """Changes as records of the topic."""
    own = [F.col(name) for name in state.names if name != WINDOW]
    value = F.when(~F.col(GONE), F.to_json(F.struct(*own), JSON_FORMAT))
    return changes.select(F.col(ID).alias("key"), value.alias("value"))


def _start_of(kind: str) -> str:
    return f'{{"kind":"{kind}"'
