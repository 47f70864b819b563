"""Protobuf events per second of CPU, compared with confluent-kafka and upb.

The event is the order of the Avro benchmark as a proto3 message. confluent-kafka reads frames into
messages and writes dicts, converted to messages, as frames, one by one; Penstock reads frames into
an Arrow batch (all columns, or two) and writes dicts or an Arrow batch as frames. Messages are not
columns: the figure of upb includes their conversion to dicts and by `pa.array`. All schemas are
cached, so no figure includes a request.
"""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench import serde
from bench.figures import Figure, report
from bench.serde import EVENTS, PEER_EVENTS, TWO, UNIT, best
from penstock.schemas.model import SchemaType
from penstock.schemas.protobuf import parse
from penstock.serde.protobuf.batch import ProtobufBatchDecoder, ProtobufBatchEncoder
from penstock.serde.protobuf.columns import ProtobufRowsEncoder
from penstock.serde.protobuf.event import MessageTypes, as_dict

PREFIX_BYTES = 6  # the id, and [0] in one byte
SCHEMA = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  string order_id = 1;
  int64 customer_id = 2;
  google.protobuf.Timestamp created_at = 3;
  Status status = 4;
  string currency = 5;
  sint64 total = 6;
  optional string coupon = 7;
  string shipping_address = 8;
  string email = 9;
  bool express = 10;
  optional string note = 11;
  repeated Item items = 12;
}
message Item {
  string sku = 1;
  string title = 2;
  int32 quantity = 3;
  double price = 4;
  optional string gift_note = 5;
}
enum Status { NEW = 0; PAID = 1; SHIPPED = 2; CANCELLED = 3; }
"""


def main() -> None:
    report(measure(), __doc__, peer="confluent-kafka")


def measure() -> Iterator[Figure]:
    """All take turns; the best round of each is the result."""
    orders = [order(number) for number in range(EVENTS)]
    confluent = Confluent()
    ours = Ours(confluent.write(orders))
    some = orders[:PEER_EVENTS]
    framed = confluent.write(some)
    note = f"{sum(map(len, framed)) / len(framed):.0f} B per event"

    whole, theirs = best(ours.read_all, lambda: confluent.read(framed))
    yield Figure("frames to Arrow, peer to messages", whole, theirs, UNIT, "", note)
    two, theirs = best(ours.read_two, lambda: confluent.read(framed))
    yield Figure("frames to two columns, peer to messages", two, theirs, UNIT)
    whole, theirs = best(ours.read_all, lambda: ours.upb_to_arrow(framed))
    yield Figure(
        "frames to Arrow, upb through dicts", whole, theirs, UNIT, ">= 20", peer_name="upb"
    )
    two, theirs = best(ours.read_two, lambda: ours.upb_to_arrow(framed))
    yield Figure(
        "frames to two columns, upb through dicts", two, theirs, UNIT, ">= 40", peer_name="upb"
    )
    rows, theirs = best(lambda: ours.write_rows(orders), lambda: len(confluent.write(some)))
    yield Figure("dicts to frames", rows, theirs, UNIT, ">= 4")
    batch, theirs = best(ours.write_batch, lambda: len(confluent.write(some)))
    yield Figure("Arrow to frames, peer from dicts", batch, theirs, UNIT, ">= 4")
    single = serde.single_serializer(SchemaType.PROTOBUF, SCHEMA, "shop.Order")
    assert [single.serialize(one).content for one in some] == framed, "the peer's own bytes"
    ours_single, theirs = best(
        lambda: len([single.serialize(one) for one in some]), lambda: len(confluent.write(some))
    )
    yield Figure("one dict to a frame", ours_single, theirs, UNIT, ">= 1")


def order(number: int) -> dict[str, Any]:
    """The event of the Avro benchmark, with Protobuf's types."""
    made = serde.order(random.Random(number), number)
    millis = made["created_at"]
    made["created_at"] = {"seconds": millis // 1000, "nanos": millis % 1000 * 1_000_000}
    made["total"] = int(made["total"] * 100)
    return made


class Ours:
    """Penstock: batches of frames, as its users would write it."""

    def __init__(self, framed: list[bytes]) -> None:
        schema = parse(SCHEMA)
        self._type = MessageTypes(schema).named("shop.Order")
        self._rows = ProtobufRowsEncoder(schema, "shop.Order")
        self._encoder = ProtobufBatchEncoder(self._type)
        self._whole = ProtobufBatchDecoder(self._type)
        self._two = ProtobufBatchDecoder(self._type, TWO)
        self._prefix = framed[0][:PREFIX_BYTES]
        self._buffer = b"".join(framed)
        sizes = np.array([len(frame) for frame in framed], dtype=np.int64)
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - sizes + PREFIX_BYTES
        self._batch = self._read(self._whole)

    def read_all(self) -> int:
        return self._read(self._whole).num_rows

    def read_two(self) -> int:
        return self._read(self._two).num_rows

    def _read(self, decoder: ProtobufBatchDecoder) -> pa.RecordBatch:
        batch, errors = decoder.decode(self._buffer, self._starts, self._ends)
        assert not errors.any()
        return batch

    def upb_to_arrow(self, framed: list[bytes]) -> int:
        rows = [as_dict(self._type.FromString(frame[PREFIX_BYTES:])) for frame in framed]
        return len(pa.array(rows))

    def write_rows(self, orders: list[Any]) -> int:
        buffer, offsets = self._rows.encode(orders, self._prefix)
        assert buffer.tobytes() == self._buffer, "the peer's own bytes"
        return len(offsets) - 1

    def write_batch(self) -> int:
        buffer, _, errors = self._encoder.encode(self._batch, self._prefix)
        assert not errors.any()
        assert buffer.tobytes() == self._buffer, "the peer's own bytes"
        return len(errors)


class Confluent:
    """Confluent's serializers with its mock registry client."""

    def __init__(self) -> None:
        client = SchemaRegistryClient.new_client({"url": "mock://bench-protobuf"})
        self._type = MessageTypes(parse(SCHEMA)).named("shop.Order")
        settings = {"use.deprecated.format": False}
        self._serializer = ProtobufSerializer(self._type, client, settings)
        self._deserializer = ProtobufDeserializer(self._type, settings, client)
        self._context = SerializationContext("orders", MessageField.VALUE)

    def write(self, orders: list[Any]) -> list[bytes]:
        return [self._serializer(self._type(**one), self._context) for one in orders]

    def read(self, framed: list[bytes]) -> int:
        return len([self._deserializer(frame, self._context) for frame in framed])


if __name__ == "__main__":
    main()
