"""Topics in Spark SQL: a temporary view for each.

    views(spark, "127.0.0.1:9092", "http://127.0.0.1:8081")
    spark.sql("SELECT country, sum(total) FROM orders GROUP BY country")

A view reads its topic from the first record to the last whenever a query is planned, and keeps the
columns that it had when it was created. Topics are listed once: call again for new ones.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import ErrorCode, Refused
from penstock.serde.errors import UnknownSchemaError
from penstock.serde.frame import Side
from penstock.spark import positions
from penstock.spark.connections import connected_cluster, kafka_properties, registry_client
from penstock.spark.reader_schemas import topic_subject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_IN_NAMES: Final = re.compile(r"\W")


def views(
    spark: "SparkSession",
    bootstrap: str,
    registry: str | None = None,
    *,
    topics: Sequence[str] | None = None,
    prefix: str = "",
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Create or replace a temporary view for each topic; the names of the views and their topics.

    Without `topics`, for all except internal ones (`__...`). A view is named like its topic, after
    `prefix`, with `_` for characters that SQL does not allow. Values are decoded if the registry
    has a schema for them, and bytes otherwise. `options` are those of `format("penstock")`, for
    every view.
    """
    given = {"kafka.bootstrap.servers": bootstrap, **(options or {})}
    cluster = connected_cluster(kafka_properties(given))
    if topics is None:
        topics = positions.topic_names(cluster)
    else:
        positions.check_topics_exist(cluster, topics)
    names = _view_names(topics, prefix)
    for name, topic in names.items():
        reader = spark.read.format("penstock").options(**given, subscribe=topic)
        if registry is not None and _has_schema(registry, topic):
            reader = reader.option("registry", registry)
        reader.load().createOrReplaceTempView(name)
    return names


def _view_names(topics: Sequence[str], prefix: str) -> dict[str, str]:
    names: dict[str, str] = {}
    for topic in topics:
        name = _NOT_IN_NAMES.sub("_", prefix + topic)
        if name in names:
            raise Refused(
                ErrorCode.invalid_request,
                f"topics {names[name]} and {topic} would both be view {name}: choose with"
                " `topics`, and create the other with another `prefix`",
            )
        names[name] = topic
    return names


def _has_schema(registry_url: str, topic: str) -> bool:
    try:
        registry_client(registry_url).latest(topic_subject(topic, Side.VALUE))
    except UnknownSchemaError:
        return False
    return True
