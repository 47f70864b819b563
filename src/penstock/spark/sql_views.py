"""Topics in Spark SQL: a temporary view for each.

    views(spark, "127.0.0.1:9092", "http://127.0.0.1:8081")
    spark.sql("SELECT country, sum(total) FROM orders GROUP BY country")

A view reads its topic from the first record to the last when a query is planned, and keeps the
columns that it had when it was made. Topics are listed once: call again for those that are new.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import ErrorCode, Refused
from penstock.serde.contract import SubjectNames, subject_name
from penstock.serde.errors import UnknownSchemaError
from penstock.serde.frame import Side
from penstock.spark import connections, positions
from penstock.spark.connections import kafka_properties, reached

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
    """Make or replace a temporary view for each topic; what each view is called, and its topic.

    Without `topics`, all but internal ones (`__...`). A view is named as its topic, after `prefix`,
    with `_` for what SQL does not take in a name. Values are decoded where the registry has a
    schema for them; of other topics they are bytes. `options` are those of `format("penstock")`,
    for every view.
    """
    given = {"kafka.bootstrap.servers": bootstrap, **(options or {})}
    brokers = reached(kafka_properties(given))
    if topics is None:
        topics = positions.topic_names(brokers)
    else:
        positions.check_exist(brokers, topics)
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
                f"topics {names[name]} and {topic} would both be view {name}: say which with"
                " `topics`, and make the other with another `prefix`",
            )
        names[name] = topic
    return names


def _has_schema(registry_url: str, topic: str) -> bool:
    try:
        subject = subject_name(SubjectNames.TOPIC, topic, Side.VALUE, None)
        connections.registry(registry_url).latest(subject)
    except UnknownSchemaError:
        return False
    return True
