"""The lag of a group: in records, and in seconds since the first record that it has not read.

Reads one record of each partition and never commits.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    OffsetSpec,
)

from penstock.cli.connect import WAIT_S, quiet_client
from penstock.clock import wall_ms

Partition = tuple[str, int]  # topic, index
NO_OFFSET: Final = -1  # nothing committed, or no record
EARLIEST: Final[Any] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the library has no types
LATEST: Final[Any] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library has no types
READ_S: Final = 5.0  # how long to wait for the records whose timestamps are needed


class PartitionLag(NamedTuple):
    """The lag of a group in one partition. None: unknown."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    records: int | None
    seconds: float | None


def ends_of(client: AdminClient, partitions: list[Partition]) -> dict[Partition, int]:
    """The end of each partition that exists."""
    return offsets_of(client, dict.fromkeys(partitions, LATEST))


def offsets_of(client: AdminClient, specs: Mapping[Partition, OffsetSpec]) -> dict[Partition, int]:
    """The offset for each partition; partitions that do not exist are left out."""
    request = {TopicPartition(*partition): spec for partition, spec in specs.items()}
    if not request:
        return {}
    offsets: dict[Partition, int] = {}
    for partition, future in client.list_offsets(request, request_timeout=WAIT_S).items():
        try:
            offsets[partition.topic, partition.partition] = future.result(WAIT_S).offset
        except KafkaException as failure:
            if failure.args[0].retriable():
                raise
    return offsets


def lag_of(
    bootstrap: str, committed: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> list[PartitionLag]:
    """The lag in every partition the group has committed in or is assigned."""
    behind = {
        partition: offset
        for partition, offset in committed.items()
        if offset >= 0 and ends.get(partition, NO_OFFSET) > offset
    }
    times = first_times(bootstrap, behind)
    now_ms = wall_ms()
    rows = []
    for partition in sorted(committed):
        offset, end = committed[partition], ends.get(partition)
        records = None if end is None or offset < 0 else max(end - offset, 0)
        seconds = 0.0 if records == 0 else None
        if partition in times:
            seconds = round(max(now_ms - times[partition], 0) / 1000, 1)
        rows.append(
            PartitionLag(*partition, offset if offset >= 0 else None, end, records, seconds)
        )
    return rows


def first_times(bootstrap: str, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
    """The timestamp of the first record at or after each offset, if it arrives in time."""
    if not offsets:
        return {}
    settings = quiet_client(
        bootstrap,
        {
            "group.id": "penstock-group-describe",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "queued.min.messages": 1,
            "fetch.message.max.bytes": 65536,
        },
    )
    consumer = Consumer(settings)
    times: dict[Partition, int] = {}
    try:
        positions = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        consumer.assign(positions)
        deadline_s = time.monotonic() + READ_S
        while len(times) < len(offsets) and time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            topic, partition = message.topic(), message.partition()
            assert topic is not None
            assert partition is not None
            if (topic, partition) not in times:
                times[topic, partition] = message.timestamp()[1]
                consumer.pause([TopicPartition(topic, partition)])
    finally:
        consumer.close()
    return times
