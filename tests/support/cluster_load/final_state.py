"""What a cluster holds after a load has ended: read by a client, and compared between replicas."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.cluster_load.writers import PARTITIONS
from tests.support.history import Read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.history import History

WAIT_S = 90.0  # transactions without an owner end after a minute
EQUAL_S = 30.0
READER = "reader"


def read_topics(history: History, bootstrap: str, topics: Sequence[str]) -> list[str]:
    """Read all committed records into the history; what prevents it."""
    partitions = [
        TopicPartition(topic, index, 0) for topic in topics for index in range(PARTITIONS)
    ]
    with _consumer(bootstrap, "read_uncommitted") as every, _consumer(bootstrap) as committed:
        give_up_at = time.monotonic() + WAIT_S
        while unsettled := [each for each in partitions if not _is_settled(each, every, committed)]:
            if time.monotonic() > give_up_at:
                return [f"{unsettled} have open transactions, or no leader"]
            time.sleep(0.5)
        committed.assign(partitions)
        return _read_to_end(history, committed, len(partitions))


def _is_settled(partition: TopicPartition, every: Any, committed: Any) -> bool:
    """Whether the partition is led, and no transaction is open in it."""
    try:
        ends = [each.get_watermark_offsets(partition, 5.0) for each in (every, committed)]
    except KafkaException:
        return False
    return bool(ends[0] == ends[1])


def _consumer(bootstrap: str, isolation: str = "read_committed") -> Any:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": READER,
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def _read_to_end(history: History, consumer: Any, partitions: int) -> list[str]:
    ended: set[tuple[str, int]] = set()
    give_up_at = time.monotonic() + WAIT_S
    while len(ended) < partitions:
        if time.monotonic() > give_up_at:
            return ["the topics cannot be read to their end"]
        messages = consumer.consume(10_000, 0.5)
        for message in messages:
            at = message.topic(), message.partition()
            if message.error() is not None:
                ended.add(at)
            else:
                history.add(Read(READER, *at, message.offset(), message.value().decode()))
    return []


def moved_otherwise_than_once(history: History, source: str, target: str) -> Iterator[str]:
    """Each record of the source is in the target once: its value, then @ and the transaction."""
    read = [each for each in history.of(Read) if each.reader == READER]
    sent = {each.value for each in read if each.topic == source}
    moved = Counter(each.value.rpartition("@")[0] for each in read if each.topic == target)
    for value, count in moved.items():
        if count > 1:
            yield f"{value} was moved {count} times"
    lost = sorted(sent - set(moved))
    if lost:
        yield f"{len(lost)} records were not moved: {lost[:5]}"
    if set(moved) - sent:
        yield f"moved, and not in the source: {sorted(set(moved) - sent)[:5]}"


def unequal_replicas(folders: Sequence[Path], topics: Sequence[str]) -> list[str]:
    """Partitions whose logs differ between brokers after everything has settled."""
    give_up_at = time.monotonic() + EQUAL_S
    while True:
        different = [
            f"the replicas of {topic}-{index} differ: {logs}"
            for topic in topics
            for index in range(PARTITIONS)
            if len(set(logs := [_digest(folder, f"{topic}-{index}") for folder in folders])) > 1
        ]
        if not different or time.monotonic() > give_up_at:
            return different
        time.sleep(0.5)


def _digest(folder: Path, partition: str) -> str:
    """Size and digest of a log, whatever the segments it is cut into."""
    digest, size = hashlib.sha256(), 0
    assert (folder / partition).is_dir()
    for path in sorted((folder / partition).glob("*.log")):  # others may be deleted meanwhile
        content = path.read_bytes()
        digest.update(content)
        size += len(content)
    return f"{size} bytes, {digest.hexdigest()[:8]}"
