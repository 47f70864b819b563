"""Avro events per second of CPU, compared with confluent-kafka and fastavro.

The event is an order of 12 fields with line items and an enum, about 512 bytes. The peers read
frames into dicts and write dicts as frames, one by one, as their users do; Penstock reads frames
into an Arrow batch (all columns, or two) and writes dicts or an Arrow batch as frames; "one dict"
is one call per event, as a producer's `send` makes it. All schemas are cached, so no figure
includes a request.
"""

import io
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench.figures import Figure, report
from penstock.client.registry import Registry
from penstock.schemas.avro import parse
from penstock.schemas.model import SchemaType
from penstock.serde.avro.batch import AvroBatchDecoder, AvroBatchEncoder
from penstock.serde.contract import Contract
from penstock.serde.serializers import Serializer

EVENTS = 10_000
PEER_EVENTS = 1_000  # the peers are slower
ROUNDS = 7
BATCH = 500
TWO = ["order_id", "total"]
UNIT = "events/s per core"
PREFIX_BYTES = 5
SCHEMA = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
  {"name": "order_id", "type": "string"},
  {"name": "customer_id", "type": "long"},
  {"name": "created_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
  {"name": "status", "type": {"type": "enum", "name": "Status",
    "symbols": ["NEW", "PAID", "SHIPPED", "CANCELLED"]}},
  {"name": "currency", "type": "string"},
  {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12,
    "scale": 2}},
  {"name": "coupon", "type": ["null", "string"], "default": null},
  {"name": "shipping_address", "type": "string"},
  {"name": "email", "type": "string"},
  {"name": "express", "type": "boolean"},
  {"name": "note", "type": ["null", "string"], "default": null},
  {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item",
    "fields": [
      {"name": "sku", "type": "string"},
      {"name": "title", "type": "string"},
      {"name": "quantity", "type": "int"},
      {"name": "price", "type": "double"},
      {"name": "gift_note", "type": ["null", "string"], "default": null}]}}}]}"""


def main() -> None:
    report(measure(), __doc__, peer="confluent-kafka")


def measure() -> Iterator[Figure]:
    """All take turns; the best round of each is the result."""
    orders = [order(random.Random(number), number) for number in range(EVENTS)]
    confluent, plain = Confluent(), Plain()
    ours = Ours(confluent.write(orders))
    framed, bare = confluent.write(orders[:PEER_EVENTS]), plain.write(orders[:PEER_EVENTS])
    size = sum(map(len, framed)) / len(framed)
    note = f"{size:.0f} B per event"

    whole, their_whole = best(ours.read_all, lambda: confluent.read(framed))
    yield Figure("frames to Arrow, all columns", whole, their_whole, UNIT, ">= 20", note)
    two, their_two = best(ours.read_two, lambda: confluent.read(framed))
    yield Figure("frames to Arrow, two columns", two, their_two, UNIT, ">= 40")
    rows, their_rows = best(
        lambda: ours.write_rows(orders), lambda: len(confluent.write(orders[:PEER_EVENTS]))
    )
    yield Figure("dicts to frames", rows, their_rows, UNIT, ">= 4")
    batch, their_batch = best(ours.write_batch, lambda: len(confluent.write(orders[:PEER_EVENTS])))
    yield Figure("Arrow to frames, peer from dicts", batch, their_batch, UNIT)
    some = orders[:PEER_EVENTS]
    single = single_serializer(SchemaType.AVRO, SCHEMA)
    assert [single.serialize(one).content for one in some] == framed, "the peer's own bytes"
    ours_single, theirs_single = best(
        lambda: len([single.serialize(one) for one in some]),
        lambda: len(confluent.write(some)),
    )
    yield Figure("one dict to a frame", ours_single, theirs_single, UNIT, ">= 1")
    whole, their_whole = best(ours.read_all, lambda: plain.read(bare))
    yield Figure("to Arrow, fastavro to dicts", whole, their_whole, UNIT, peer_name="fastavro")
    rows, their_rows = best(
        lambda: ours.write_rows(orders), lambda: len(plain.write(orders[:PEER_EVENTS]))
    )
    yield Figure("dicts to bytes, fastavro", rows, their_rows, UNIT, peer_name="fastavro")

    mine = micros(ours.there_and_back, orders)
    theirs = micros(lambda part: confluent.read(confluent.write(part)), orders)
    middle = statistics.median
    yield Figure(
        "write and read, median", middle(mine), middle(theirs), "us/event", "<= 0.2", "budget 8"
    )
    yield Figure("write and read, p99", late(mine), late(theirs), "us/event", "", "budget 30")
    arrow = micros(ours.there_and_back_in_arrow, list(range(EVENTS)))
    yield Figure("write and read in Arrow, median", middle(arrow), middle(theirs), "us/event")


class StoredSchema:
    """The registry of the client, without HTTP: the schema has the id that the peer gave it."""

    def register(self, _subject: str, _body: Any, **_options: bool) -> dict[str, Any]:
        """The response of a registry; called once, then cached by the client."""
        return {"id": 1, "guid": str(UUID(int=1))}


def single_serializer(language: SchemaType, schema: str, message: str | None = None) -> Serializer:
    """Writes one event at a time, as a producer does, with the client's registry cache."""
    registry = Registry("http://127.0.0.1:9")
    vars(registry)["api"] = StoredSchema()  # all that is called of it
    return Serializer(registry, "orders", Contract(schema, type=language, message=message))


def best(ours: Callable[[], int], theirs: Callable[[], int]) -> tuple[float, float]:
    """Events per CPU second of each."""
    ours()  # compiled or loaded from the cache: not measured
    rounds = [(rate(ours), rate(theirs)) for _ in range(ROUNDS)]
    mine, peer = (max(column) for column in zip(*rounds, strict=True))
    return mine, peer


def rate(work: Callable[[], int]) -> float:
    start = time.process_time()
    count = work()
    return count / (time.process_time() - start)


def micros(work: Callable[[list[Any]], object], orders: list[Any]) -> list[float]:
    """CPU microseconds per event of each batch, written and read again."""
    times = []
    for start in range(0, EVENTS, BATCH):
        part = orders[start : start + BATCH]
        began = time.process_time()
        work(part)
        times.append((time.process_time() - began) / len(part) * 1e6)
    return times


def order(rng: random.Random, number: int) -> dict[str, Any]:
    """One event; every third has a coupon, every second a note."""
    return {
        "order_id": f"order-{number:010d}",
        "customer_id": rng.randrange(1 << 40),
        "created_at": 1_700_000_000_000 + number,
        "status": rng.choice(("NEW", "PAID", "SHIPPED", "CANCELLED")),
        "currency": "EUR",
        "total": Decimal(rng.randrange(10**7)).scaleb(-2),
        "coupon": None if number % 3 else "AUTUMN-10",
        "shipping_address": f"{number} Long Street, 12345 Some Town, Somewhere",
        "email": f"customer.{number}@example.com",
        "express": number % 2 == 0,
        "note": "leave it with the neighbours, please" if number % 2 else None,
        "items": [item(rng) for _ in range(8)],
    }


def item(rng: random.Random) -> dict[str, Any]:
    return {
        "sku": f"SKU-{rng.randrange(10**8):08d}",
        "title": "a thing that people buy",
        "quantity": rng.randrange(1, 10),
        "price": rng.randrange(10_000) / 100,
        "gift_note": None,
    }


class Ours:
    """Penstock: batches of frames, as its users would write it."""

    def __init__(self, framed: list[bytes]) -> None:
        schema = parse(SCHEMA)
        self._encoder = AvroBatchEncoder(schema)
        self._whole = AvroBatchDecoder(schema)
        self._two = AvroBatchDecoder(schema, columns=TWO)
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

    def _read(self, decoder: AvroBatchDecoder) -> pa.RecordBatch:
        batch, errors = decoder.decode(self._buffer, self._starts, self._ends)
        assert not errors.any()
        return batch

    def write_rows(self, orders: list[Any]) -> int:
        return self._checked(*self._encoder.encode_rows(orders, self._prefix))

    def write_batch(self) -> int:
        return self._checked(*self._encoder.encode(self._batch, self._prefix))

    def _checked(self, buffer: Any, _offsets: Any, errors: Any) -> int:
        assert not errors.any()
        assert buffer.tobytes() == self._buffer or len(errors) < EVENTS, "the peer's own bytes"
        return len(errors)

    def there_and_back(self, orders: list[Any]) -> int:
        return self._back(*self._encoder.encode_rows(orders, self._prefix))

    def there_and_back_in_arrow(self, numbers: list[int]) -> int:
        part = self._batch.slice(numbers[0], len(numbers))
        return self._back(*self._encoder.encode(part, self._prefix))

    def _back(self, buffer: Any, offsets: Any, errors: Any) -> int:
        assert not errors.any()
        batch, errors = self._whole.decode(buffer, offsets[:-1] + PREFIX_BYTES, offsets[1:])
        assert not errors.any()
        return batch.num_rows


class Confluent:
    """Confluent's serializers with its mock registry client."""

    def __init__(self) -> None:
        client = SchemaRegistryClient.new_client({"url": "mock://bench"})
        self._serializer = AvroSerializer(client, SCHEMA)
        self._deserializer = AvroDeserializer(client, SCHEMA)
        self._context = SerializationContext("orders", MessageField.VALUE)

    def write(self, orders: list[Any]) -> list[bytes]:
        return [self._serializer(one, self._context) for one in orders]

    def read(self, framed: list[bytes]) -> int:
        return len([self._deserializer(frame, self._context) for frame in framed])


class Plain:
    """fastavro alone, without frames."""

    def __init__(self) -> None:
        self._schema = fastavro.parse_schema(json.loads(SCHEMA))

    def write(self, orders: list[Any]) -> list[bytes]:
        payloads = []
        for one in orders:
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, self._schema, one)
            payloads.append(buffer.getvalue())
        return payloads

    def read(self, payloads: list[bytes]) -> int:
        return len([fastavro.schemaless_reader(io.BytesIO(one), self._schema) for one in payloads])


def late(times: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(times, n=100)[98]


if __name__ == "__main__":
    main()
