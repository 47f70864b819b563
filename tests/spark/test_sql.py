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


def test_each_topic_is_a_view_decoded_where_there_is_a_schema(
    spark: SparkSession, orders: str, make_topic: MakeTopic, bootstrap: str, registry_url: str
) -> None:
    plain = make_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(plain, b"bytes")
    assert producer.flush(20) == 0
    made = views(spark, bootstrap, registry_url, topics=[orders, plain], prefix="my.")
    assert list(made.values()) == [orders, plain]
    decoded, raw = made
    assert decoded == "my_" + orders.replace("-", "_")
    found = spark.sql(f"SELECT id, address.city FROM {decoded} ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(0, None), (1, "Ulm")]
    assert spark.sql(f"SELECT cast(value AS string) FROM {raw}").collect()[0][0] == "bytes"


def create(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(20)


def test_all_topics_are_views_but_internal_ones(spark: SparkSession) -> None:
    with EmbeddedBroker() as own:
        create(own.bootstrap, "orders", "orders.quarantine", "__internal")
        assert views(spark, own.bootstrap) == {
            "orders": "orders",
            "orders_quarantine": "orders.quarantine",
        }
        assert spark.sql("SELECT * FROM orders_quarantine").collect() == []


def test_topics_that_would_be_the_same_view_are_refused(
    spark: SparkSession, make_topic: MakeTopic, bootstrap: str
) -> None:
    name = make_topic(1)
    create(bootstrap, f"{name}-x", f"{name}_x")
    told = f"topics {name}-x and {name}_x would both be view {name.replace('-', '_')}_x"
    with pytest.raises(Refused, match=told):
        views(spark, bootstrap, topics=[f"{name}-x", f"{name}_x"])
    with pytest.raises(Refused, match=f"topic {name}y does not exist: did you mean {name}"):
        views(spark, bootstrap, topics=[f"{name}y"])


def test_a_temporary_view_is_made_in_sql_and_a_table_says_what_to_do_instead(
    spark: SparkSession, orders: str, bootstrap: str, registry_url: str
) -> None:
    told = options(bootstrap, registry_url, orders)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sql_orders USING penstock {told}")
    assert spark.sql("SELECT count(*) FROM sql_orders").collect()[0][0] == 2
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE sql_table USING penstock {told}")
    spark.sql(f"CREATE TABLE sql_table (id BIGINT) USING penstock {told}")
    try:
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM sql_table").collect()
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("INSERT INTO sql_table VALUES (1)")
    finally:
        spark.sql("DROP TABLE sql_table")


def test_an_optional_record_with_required_fields_comes_as_arrow(
    spark: SparkSession, orders: str, bootstrap: str, registry_url: str
) -> None:
    (name,) = views(spark, bootstrap, registry_url, topics=[orders])
    found = spark.table(name).select("id", "address").toArrow().to_pylist()
    assert [row["address"] and row["address"]["city"] for row in found] == [None, "Ulm"]
    assert dict(found[1]["address"]["tags"]) == ADDRESS["tags"]
