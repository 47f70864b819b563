"""Topics in Spark SQL."""

import json
from collections.abc import Callable
from typing import TypeAlias

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.client.registry import Registry
from penstock.errors import Refused
from penstock.serde.contract import Contract
from penstock.serde.serializers import Serializer
from penstock.spark import views
from penstock.testing.embedded import EmbeddedBroker

MakeTopic: TypeAlias = Callable[..., str]
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {
                "name": "address",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Address",
                        "fields": [
                            {"name": "city", "type": "string"},
                            {"name": "lines", "type": {"type": "array", "items": "string"}},
                            {"name": "tags", "type": {"type": "map", "values": "int"}},
                        ],
                    },
                ],
            },
        ],
    }
)
ADDRESS = {"city": "Ulm", "lines": ["a", "b"], "tags": {"floor": 3}}


@pytest.fixture
def orders(make_topic: MakeTopic, bootstrap: str, registry: Registry) -> str:
    """A topic with two orders, one of which has no address."""
    name = make_topic(1)
    write = Serializer(registry, name, Contract(ORDER))
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, address in enumerate([None, ADDRESS]):
        producer.produce(name, write.serialize({"id": number, "address": address}).content)
    assert producer.flush(20) == 0
    return name


def options(bootstrap: str, registry_url: str, topic: str) -> str:
    return (
        f"OPTIONS (`kafka.bootstrap.servers` '{bootstrap}', registry '{registry_url}',"
        f" subscribe '{topic}')"
    )


def test_each_topic_is_a_view_and_is_decoded_if_it_has_a_schema(
    spark: SparkSession, orders: str, make_topic: MakeTopic, bootstrap: str, registry_url: str
) -> None:
    without_schema = make_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(without_schema, b"bytes")
    assert producer.flush(20) == 0
    topics = [orders, without_schema]
    names = views(spark, bootstrap, registry_url, topics=topics, prefix="my.")
    assert list(names.values()) == topics
    decoded, raw = names
    assert decoded == "my_" + orders.replace("-", "_")
    rows = spark.sql(f"SELECT id, address.city FROM {decoded} ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(0, None), (1, "Ulm")]
    assert spark.sql(f"SELECT cast(value AS string) FROM {raw}").collect()[0][0] == "bytes"


def create(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(20)


def test_all_topics_except_internal_ones_are_views(spark: SparkSession) -> None:
    with EmbeddedBroker() as broker:
        create(broker.bootstrap, "orders", "orders.quarantine", "__internal")
        assert views(spark, broker.bootstrap) == {
            "orders": "orders",
            "orders_quarantine": "orders.quarantine",
        }
        assert spark.sql("SELECT * FROM orders_quarantine").collect() == []


def test_topics_that_would_be_the_same_view_are_refused(
    spark: SparkSession, make_topic: MakeTopic, bootstrap: str
) -> None:
    name = make_topic(1)
    create(bootstrap, f"{name}-x", f"{name}_x")
    message = f"topics {name}-x and {name}_x would both be view {name.replace('-', '_')}_x"
    with pytest.raises(Refused, match=message):
        views(spark, bootstrap, topics=[f"{name}-x", f"{name}_x"])
    with pytest.raises(Refused, match=f"topic {name}y does not exist: did you mean {name}"):
        views(spark, bootstrap, topics=[f"{name}y"])


def test_sql_creates_temporary_views_and_refuses_tables_with_a_remedy(
    spark: SparkSession, orders: str, bootstrap: str, registry_url: str
) -> None:
    clause = options(bootstrap, registry_url, orders)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sql_orders USING penstock {clause}")
    assert spark.sql("SELECT count(*) FROM sql_orders").collect()[0][0] == 2
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE sql_table USING penstock {clause}")
    spark.sql(f"CREATE TABLE sql_table (id BIGINT) USING penstock {clause}")
    try:
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM sql_table").collect()
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("INSERT INTO sql_table VALUES (1)")
    finally:
        spark.sql("DROP TABLE sql_table")


def test_an_optional_record_with_required_fields_can_be_read_as_arrow(
    spark: SparkSession, orders: str, bootstrap: str, registry_url: str
) -> None:
    (name,) = views(spark, bootstrap, registry_url, topics=[orders])
    rows = spark.table(name).select("id", "address").toArrow().to_pylist()
    assert [row["address"] and row["address"]["city"] for row in rows] == [None, "Ulm"]
    assert dict(rows[1]["address"]["tags"]) == ADDRESS["tags"]
