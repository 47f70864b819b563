"""Orders into the log, fast: encoded once, then sent again and again under new order ids.

A pool of orders is encoded and laid out as record batches once. Each round copies these batches,
replaces the order ids in them, and sends them as an idempotent producer over `link`. So order ids
are unique and the other fields repeat from round to round. A partition is written by one process:
the same plan puts the same orders in the same batches and order into each partition, whatever the
rate and the number of processes. So a plan that was interrupted continues exactly behind what is in
the log.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
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
from penstock.link.offsets import end_offsets, partitions_of
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
    """What to write: rounds of the pool, or every n-th of them, to some partitions or all.

    Writers that share a topic's rounds write to the same partitions; those that share its
    partitions write the same rounds.
    """

    topic: str
    versions: tuple[str, ...] = ("v1",)  # of the Order, in turn
    language: SchemaType = SchemaType.AVRO
    seed: int = 1
    count: int = 1_000_000
    rate: int | None = None  # orders per second, of all partitions; None: as fast as possible
    codec: Codec = Codec.NONE
    instance: int = 0
    instances: int = 1  # instance i writes the partitions i, i + instances, …
    first_round: int = 0
    round_step: int = 1
    is_resumed: bool = False  # continue behind what is there; nothing else may write to the topic
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
        partitions = cluster.run(partitions_of([plan.topic]))
        self._partition_count = len(partitions)
        self._payloads = order_payloads(plan, registry, min(plan.pool, plan.count))
        self._templates = self._own_templates(self._payloads)
        self._producer = cluster.run(init_producer_id())
        self._sequences: Counter[int] = Counter()  # the next, by partition
        self._there: dict[int, int] = {}  # records in each partition that are not written again
        if plan.is_resumed:
            ends = cluster.run(end_offsets(partitions))
            self._there = {one.partition: int(end) for one, end in ends.items()}

    def write(self, on_written: Callable[[int], None] = lambda _count: None) -> int:
        """Write them all; `on_written` gets the number of orders so far, with those there before.

        It counts the orders in the partitions of this writer.
        """
        plan = self._plan
        written = 0
        since_s = plan.since_s
        for number in range(plan.first_round, -(-plan.count // plan.pool), plan.round_step):
            if plan.rate is not None:
                due_s = number // plan.round_step * plan.pool / plan.rate
                since_s = time.monotonic() - due_s if since_s is None else since_s
                time.sleep(max(0.0, since_s + due_s - time.monotonic()))
            templates = self._templates
            if (left := plan.count - number * plan.pool) < len(self._payloads):
                templates = self._own_templates(self._payloads[:left])
            batches = self._round(number, templates)
            if batches:
                self._cluster.run(send_batches(batches))
            written += sum(len(one.numbers) for queue in templates.values() for one in queue)
            if batches or left <= plan.pool:
                on_written(written)
        return written

    def _own_templates(self, payloads: Sequence[bytes]) -> dict[int, list[_Template]]:
        plan = self._plan
        own = range(plan.instance, self._partition_count, plan.instances)
        return _templates(payloads, self._partition_count, own)

    def _round(
        self, number: int, templates: Mapping[int, Sequence[_Template]]
    ) -> dict[TopicPartition, list[memoryview]]:
        """The batches of one round that are not in the log yet."""
        batches: dict[TopicPartition, list[memoryview]] = {}
        for partition, queue in templates.items():
            for template in queue:
                there = self._there.get(partition, 0)
                if there:
                    self._there[partition] = there - len(template.numbers)
                    assert self._there[partition] >= 0, "a batch is in the log or not"
                    continue
                batch = self._batch(partition, template, number)
                batches.setdefault(TopicPartition(self._plan.topic, partition), []).append(batch)
        return batches

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


def _templates(
    payloads: Sequence[bytes], partition_count: int, own: Container[int]
) -> dict[int, list[_Template]]:
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
        if partition in own
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
