"""How far a group is behind: in records, and in seconds since the first record it has not read.

Reaches the cluster as any client does. Reading one record of each partition never commits anything.
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

Place = tuple[str, int]  # topic, partition
NOTHING: Final = -1  # no offset committed, or no record there
EARLIEST: Final[Any] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the library has no types
LATEST: Final[Any] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library has no types
LOOK_S: Final = 5.0  # how long to wait for the records whose time is asked for


class Lag(NamedTuple):
    """Where a group is in one partition. None: it cannot be told."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    records: int | None
    seconds: float | None


def ends_of(client: AdminClient, places: list[Place]) -> dict[Place, int]:
    """The end of each partition that exists."""
    return offsets_of(client, dict.fromkeys(places, LATEST))


def offsets_of(client: AdminClient, wanted: Mapping[Place, OffsetSpec]) -> dict[Place, int]:
    """What the cluster answers for each place; places that do not exist are left out."""
    asked = {TopicPartition(*place): spec for place, spec in wanted.items()}
    if not asked:
        return {}
    found: dict[Place, int] = {}
    for where, future in client.list_offsets(asked, request_timeout=WAIT_S).items():
        try:
            found[where.topic, where.partition] = future.result(WAIT_S).offset
        except KafkaException as failure:
            if failure.args[0].retriable():
                raise
    return found


def lag_of(bootstrap: str, committed: Mapping[Place, int], ends: Mapping[Place, int]) -> list[Lag]:
    """The lag in every partition the group has committed in or is assigned."""
    behind = {
        place: offset
        for place, offset in committed.items()
        if offset >= 0 and ends.get(place, NOTHING) > offset
    }
    times = first_times(bootstrap, behind)
    now_ms = time.time() * 1000
    rows = []
    for place in sorted(committed):
        offset, end = committed[place], ends.get(place)
        records = None if end is None or offset < 0 else max(end - offset, 0)
        seconds = 0.0 if records == 0 else None
        if place in times:
            seconds = round(max(now_ms - times[place], 0) / 1000, 1)
        rows.append(Lag(*place, offset if offset >= 0 else None, end, records, seconds))
    return rows


def first_times(bootstrap: str, places: Mapping[Place, int]) -> dict[Place, int]:
    """The timestamp of the first record at or after each offset, where one comes in time."""
    if not places:
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
    times: dict[Place, int] = {}
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in places.items()])
        until = time.monotonic() + LOOK_S
        while len(times) < len(places) and time.monotonic() < until:
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
