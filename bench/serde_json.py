"""JSON events per second of CPU, compared with confluent-kafka.

The event is the order of the Avro benchmark with a JSON Schema. Both validate every event. The peer
reads frames into dicts and writes dicts as frames, one by one; Penstock reads frames into an Arrow
batch and writes dicts or an Arrow batch. All schemas are cached, so no figure includes a request.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench import serde
from bench.figures import Figure, report
from bench.serde import EVENTS, PEER_EVENTS, PREFIX_BYTES, TWO, UNIT, best
from penstock.columns.compiled import read_only
from penstock.schemas.json import parse
from penstock.serde.json.batch import JsonBatchDecoder
from penstock.serde.json.columns import JsonRowsEncoder

TEXT = {"type": "string"}
SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "required": ["order_id", "customer_id", "status", "items"],
        "properties": {
            "order_id": TEXT,
            "customer_id": {"type": "integer"},
            "created_at": {"type": "integer", "minimum": 0},
            "status": {"type": "string", "enum": ["NEW", "PAID", "SHIPPED", "CANCELLED"]},
            "currency": {"type": "string", "maxLength": 3},
            "total": {"type": "number"},
            "coupon": {"type": ["null", "string"]},
            "shipping_address": TEXT,
            "email": TEXT,
            "express": {"type": "boolean"},
            "note": {"type": ["null", "string"]},
            "items": {"type": "array", "items": {"$ref": "#/definitions/item"}},
        },
        "definitions": {
            "item": {
                "type": "object",
                "required": ["sku"],
                "properties": {
                    "sku": TEXT,
                    "title": TEXT,
                    "quantity": {"type": "integer", "minimum": 1},
                    "price": {"type": "number"},
                    "gift_note": {"type": ["null", "string"]},
                },
            }
        },
    }
)


def main() -> None:
    report(measure(), __doc__, peer="confluent-kafka")


def measure() -> Iterator[Figure]:
    """Both take turns; the best round of each is the result."""
    orders = [order(number) for number in range(EVENTS)]
    confluent = Confluent()
    some = orders[:PEER_EVENTS]
    framed = confluent.write(some)
    ours = Ours(orders, framed[0][:PREFIX_BYTES])
    note = f"{sum(map(len, framed)) / len(framed):.0f} B per event"
    whole, theirs = best(ours.read_all, lambda: confluent.read(framed))
    yield Figure("frames to Arrow, validated", whole, theirs, UNIT, ">= 4", note)
    two, theirs = best(ours.read_two, lambda: confluent.read(framed))
    yield Figure("frames to two columns, validated", two, theirs, UNIT, ">= 4")
    rows, theirs = best(lambda: ours.write_rows(orders), lambda: len(confluent.write(some)))
    yield Figure("dicts to frames, validated", rows, theirs, UNIT, ">= 4")
    batch, theirs = best(ours.write_batch, lambda: len(confluent.write(some)))
    yield Figure("Arrow to frames, validated, peer from dicts", batch, theirs, UNIT, ">= 4")


def order(number: int) -> dict[str, Any]:
    """The event of the Avro benchmark, with numbers for types that JSON does not have."""
    made = serde.order(random.Random(number), number)
    return {**made, "total": float(made["total"])}


class Ours:
    """Penstock: batches of frames, as its users would write it."""

    def __init__(self, orders: list[Any], prefix: bytes) -> None:
        schema = parse(SCHEMA)
        self._rows = JsonRowsEncoder(schema)
        self._whole = JsonBatchDecoder(schema)
        self._two = JsonBatchDecoder(schema, TWO)
        self._prefix = prefix
        buffer, offsets = self._rows.encode(orders, prefix)
        self._buffer = read_only(buffer)
        self._starts = np.ascontiguousarray(offsets[:-1] + PREFIX_BYTES)
        self._ends = offsets[1:]
        self._batch = self._read(self._whole)

    def read_all(self) -> int:
        return self._read(self._whole).num_rows

    def read_two(self) -> int:
        return self._read(self._two).num_rows

    def _read(self, decoder: JsonBatchDecoder) -> pa.RecordBatch:
        batch, errors = decoder.decode(self._buffer, self._starts, self._ends)
        assert not errors
        return batch

    def write_rows(self, orders: list[Any]) -> int:
        return len(self._rows.encode(orders, self._prefix)[1]) - 1

    def write_batch(self) -> int:
        return len(self._rows.encode(self._batch, self._prefix)[1]) - 1


class Confluent:
    """Confluent's serializers with its mock registry client."""

    def __init__(self) -> None:
        client = SchemaRegistryClient.new_client({"url": "mock://bench-json"})
        self._serializer = JSONSerializer(SCHEMA, client)
        self._deserializer = JSONDeserializer(SCHEMA, schema_registry_client=client)
        self._context = SerializationContext("orders", MessageField.VALUE)

    def write(self, orders: list[Any]) -> list[bytes]:
        return [self._serializer(one, self._context) for one in orders]

    def read(self, framed: list[bytes]) -> int:
        return len([self._deserializer(frame, self._context) for frame in framed])


if __name__ == "__main__":
    main()
