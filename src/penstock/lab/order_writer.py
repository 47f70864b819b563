"""Orders into the log, fast: encoded once, then sent again and again under new order ids.

A pool of orders is encoded and laid out as record batches once. Each round copies these batches,
replaces the order ids in them, and sends them as an idempotent producer over `link`. So order ids
are unique and the other fields repeat from round to round; the same seed writes the same orders in
the same order to each partition, whatever the rate.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.client.registry import Registry
from penstock.columns.build_batches import Framing, build_batches
from penstock.columns.compiled import Int64s
from penstock.columns.partitioner import Unkeyed
from penstock.lab.order_events import ID_PREFIX, NUMBER_DIGITS, order_event
from penstock.lab.order_schemas import SHAPES, contract_of
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import partitions_of
from penstock.link.send_batches import send_batches
from penstock.link.transactions import init_producer_id
from penstock.model import Millis, SequenceNumber, TopicPartition
from penstock.protocol.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    SEQUENCE_MASK,
    read_header,
    seal,
    write_header,
)
from penstock.protocol.compression import Codec, compress
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchSerializer

POOL_ORDERS: Final = 20_000
_ID: Final = re.compile(ID_PREFIX.encode() + rb"(\d{%d})" % NUMBER_DIGITS)
_POWERS: Final = 10 ** np.arange(NUMBER_DIGITS - 1, -1, -1, dtype=np.int64)
_ZERO: Final = ord("0")


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """What to write. Instance i of n writes every n-th round of the pool, from the i-th on."""

    topic: str
    versions: tuple[str, ...] = ("v1",)  # of the Order, in turn
    language: SchemaType = SchemaType.AVRO
    seed: int = 1
    count: int = 1_000_000
    rate: int | None = None  # orders per second; None: as fast as possible
    codec: Codec = Codec.NONE
    instance: int = 0
    instances: int = 1
    start: int = 0  # orders of this instance that are there already
    pool: int = POOL_ORDERS  # orders that are encoded; the others repeat them
    since_s: float | None = None  # monotonic: the rate counts from here, a pause is caught up


class _Template(NamedTuple):
    """One batch of a partition, and where the ids of its orders are."""

    content: bytes
    positions: Int64s  # of the first digit
    numbers: Int64s  # in the pool


def order_payloads(plan: OrderPlan, registry: Registry, count: int) -> list[bytes]:
    """The first orders of a plan, framed; registers the contracts of its versions."""
    payloads: list[bytes] = [b""] * count
    for turn, version in enumerate(plan.versions):
        shape = SHAPES[version]
        numbers = range(turn, count, len(plan.versions))
        serializer = BatchSerializer(registry, plan.topic, contract_of(shape, plan.language))
        rows = [order_event(shape, plan.seed, number) for number in numbers]
        if rows:
            contents = serializer.serialize_many(rows).contents()
            for number, content in zip(numbers, contents, strict=True):
                payloads[number] = content
    return payloads


class OrderWriter:
    """Writes the orders of one plan over connections of its own."""

    def __init__(self, plan: OrderPlan, cluster: BlockingCluster, registry: Registry) -> None:
        self._plan = plan
        self._cluster = cluster
        self._partition_count = len(cluster.run(partitions_of([plan.topic])))
        self._payloads = order_payloads(plan, registry, min(plan.pool, plan.count))
        self._templates = _templates(self._payloads, self._partition_count)
        self._producer = cluster.run(init_producer_id())
        self._sequences: Counter[int] = Counter()  # the next, by partition

    def write(self, on_written: Callable[[int], None] = lambda _count: None) -> int:
        """Write them all; `on_written` gets the number of orders of this instance so far."""
        plan = self._plan
        written = plan.start
        started_s = time.monotonic() - written / plan.rate if plan.rate is not None else 0.0
        if plan.since_s is not None:
            started_s = plan.since_s
        for number in self._rounds():
            left = plan.count - number * plan.pool
            batches = self._round(number, left)
            self._cluster.run(send_batches(batches))
            written += min(left, plan.pool)
            on_written(written)
            if plan.rate is not None:
                ahead_s = written / plan.rate - (time.monotonic() - started_s)
                time.sleep(max(0.0, ahead_s))
        return written

    def _rounds(self) -> Iterator[int]:
        rounds = -(-self._plan.count // self._plan.pool)
        done = self._plan.start // self._plan.pool
        own = range(self._plan.instance, rounds, self._plan.instances)
        return iter(own[done:])

    def _round(self, number: int, left: int) -> Mapping[TopicPartition, Sequence[memoryview]]:
        """The batches of one round; the last one may have less than the pool."""
        templates = self._templates
        if left < len(self._payloads):
            templates = _templates(self._payloads[:left], self._partition_count)
        return {
            TopicPartition(self._plan.topic, partition): [
                self._batch(partition, template, number) for template in queue
            ]
            for partition, queue in templates.items()
        }

    def _batch(self, partition: int, template: _Template, number: int) -> memoryview:
        content = bytearray(template.content)
        view = np.frombuffer(content, dtype=np.uint8)
        ids = template.numbers + number * self._plan.pool
        digits = (ids[:, None] // _POWERS % 10 + _ZERO).astype(np.uint8)
        view[template.positions[:, None] + np.arange(NUMBER_DIGITS)] = digits
        header = read_header(content)
        packed = memoryview(content)
        codec = self._plan.codec
        if codec != Codec.NONE:
            small = compress(codec, packed[HEADER_BYTES:])
            packed = memoryview(bytearray(HEADER_BYTES + len(small)))
            packed[HEADER_BYTES:] = small
        sequence = self._sequences[partition]
        now = int(time.time() * 1000)
        write_header(
            packed,
            0,
            header._replace(
                length=len(packed) - LOG_OVERHEAD_BYTES,
                attributes=int(codec),
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.producer_epoch,
                base_sequence=SequenceNumber(sequence),
                base_timestamp=now,
                max_timestamp=now,
            ),
        )
        seal(packed)
        self._sequences[partition] = (sequence + header.record_count) & SEQUENCE_MASK
        return packed


def _templates(payloads: Sequence[bytes], partition_count: int) -> dict[int, list[_Template]]:
    """The pool as batches; the key is the first order id, so that a partition gets the same."""
    keys = [_id_of(payload) for payload in payloads]
    records = pa.RecordBatch.from_pydict(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(payloads, pa.binary())}
    )
    built = build_batches(
        records,
        partition_count=partition_count,
        now=Millis(0),
        unkeyed=Unkeyed.round_robin(),
        framing=Framing(batch_bytes_max=900_000),
    )
    return {
        partition: [_template(batch.content.tobytes()) for batch in part.batches]
        for partition, part in built.items()
    }


def _id_of(payload: bytes) -> bytes:
    match = _ID.search(payload)
    assert match is not None, "every order has an id"
    return match[1]


def _template(content: bytes) -> _Template:
    found = [(match.start(1), int(match[1])) for match in _ID.finditer(content)]
    positions, numbers = zip(*found, strict=True)
    return _Template(
        content, np.array(positions, dtype=np.int64), np.array(numbers, dtype=np.int64)
    )
