"""Topics to read with the Spark source, and the calls that Spark makes to it, without a JVM."""

import json
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.client.registry import Registry
from penstock.serde.contract import Contract, Form
from penstock.serde.serializers import Serializer
from penstock.spark.source import batch_reader, read_schema, stream_reader
from penstock.spark.spark_types import arrow_schema


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


ID: dict[str, Any] = {"name": "id", "type": "long"}
AT: dict[str, Any] = {
    "name": "at",
    "type": {"type": "long", "logicalType": "timestamp-millis"},
    "default": 0,
}
NOTE: dict[str, Any] = {"name": "note", "type": ["null", "string"], "default": None}
V1, V2 = avro(ID, AT), avro(ID, AT, NOTE)


class SourceTopic:
    """A topic and the options to read it."""

    def __init__(self, name: str, bootstrap: str, registry: Registry) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.registry = registry
        self.options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name}
        self.decoded = {**self.options, "registry": registry.url}

    def put(self, *values: bytes | None, **more: Any) -> None:
        settings = more.pop("settings", {})
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        for value in values:
            producer.produce(self.name, value, **{"partition": 0, **more})
        assert producer.flush(20) == 0

    def delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([self.name])[self.name].result(20)

    def create_again(self) -> None:
        self.delete()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        again = NewTopic(self.name, num_partitions=1, replication_factor=1)
        admin.create_topics([again])[self.name].result(20)

    def serializer(self, schema: str, form: Form = Form.PREFIX) -> Serializer:
        return Serializer(self.registry, self.name, Contract(schema, form=form))

    def orders(self, schema: str, *ids: int) -> list[bytes]:
        write = self.serializer(schema)
        framed = [write.serialize({"id": number, "at": number}).content for number in ids]
        return [value for value in framed if value is not None]


def table(options: dict[str, str], **more: str) -> pa.Table:
    """All rows of a batch read."""
    given = {**options, **more}
    schema = read_schema(given)
    reader = batch_reader(given, schema)
    return rows(reader, reader.partitions(), schema)


def rows(reader: Any, partitions: Any, schema: Any) -> pa.Table:
    """The rows of some tasks, in the types that Spark expects."""
    expected = arrow_schema(schema)
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    for batch in batches:
        assert batch.schema.equals(expected)
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema=expected)


def stream(options: dict[str, str], **more: str) -> tuple[Any, Any]:
    given = {**options, **more}
    schema = read_schema(given)
    return stream_reader(given, schema), schema


def moved(reader: Any, start: Any, limit: Any = None) -> Any:
    return reader.latestOffset(start, limit or ReadAllAvailable())
