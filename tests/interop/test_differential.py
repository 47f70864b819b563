"""The same raw requests to Apache Kafka and to Penstock; what they answer must be the same.

A scenario asks one peer and notes what matters of each answer. Both notes are compared line by
line, except those that `DELIBERATE` names with a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

from penstock.protocol.codecs import Codec
from penstock.protocol.records import Record, build_batch
from penstock.testing.apache_kafka import ApacheKafka, PeerUnavailable
from penstock.testing.embedded import EmbeddedBroker
from penstock.testing.wire import Wire, batch

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NOW: Final = int(time.time() * 1000)

Notes = dict[str, Any]


class Deliberate(NamedTuple):
    """A line on which the peers differ, what Penstock answers there, and why."""

    ours: object
    reason: str


_LOOK_AGAIN = "sending the same bytes again cannot help, and CORRUPT_MESSAGE is retried"
_WHOLE = "only whole batches are sent: a client drops the torn one at the end"
_ELSEWHERE = "Apache Kafka answers a record that was deleted"
DELIBERATE: Final[dict[tuple[str, str], Deliberate]] = {
    ("wrong_batches", "trailing bytes"): Deliberate(
        (87, -1, None, []), "bytes after the batch are a client's mistake, not padding"
    ),
    ("wrong_batches", "magic 3"): Deliberate((87, -1, None, []), _LOOK_AGAIN),
    ("wrong_batches", "length too small"): Deliberate((87, -1, None, []), _LOOK_AGAIN),
    ("transactional_batches_out_of_place", "no id, v9"): Deliberate(
        (48, -1, None, []), "it is a wrong state, not a missing right"
    ),
    ("list_offsets", "after delete -3"): Deliberate((0, 5, 3, 0), _ELSEWHERE),
    ("list_offsets", "all deleted -3"): Deliberate((0, -1, -1, -1), _ELSEWHERE),
    ("fetches", "partition max 178"): Deliberate((0, 10, 10, 0, 342, None), _WHOLE),
    ("fetches", "max 178"): Deliberate((0, 10, 10, 0, 342, None), _WHOLE),
    ("altering_configs", "described unset"): Deliberate(
        (0, [("retention.ms", "604800000", 5, False, 5, [5])]),
        "the default is a synonym like any other",
    ),
    ("altering_configs", "2 figs-t [('retention.ms', 9, '1')]"): Deliberate(
        42, "UNKNOWN_SERVER_ERROR says nothing of what is wrong"
    ),
}


class Peer:
    """One broker and what a scenario asks of it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.wire = Wire(port)
        self.notes: Notes = {}
        self._scenario = ""

    def begin(self, scenario: str) -> None:
        """Notes of another scenario, on a connection of its own."""
        self.wire.close()
        self.wire = Wire(self.port)
        self.notes = {}
        self._scenario = scenario.replace("_", "-")

    def note(self, line: str, observed: object) -> None:
        assert line not in self.notes, f"{line} is noted twice"
        self.notes[line] = observed

    def name(self, suffix: str = "t") -> str:
        return f"{self._scenario}-{suffix}"

    def topic(self, suffix: str = "t", *, partitions: int = 1, **config: str) -> str:
        """Make a topic of this scenario; configuration keys have underscores for dots."""
        name = self.name(suffix)
        made = self.create(name, partitions, configs=config)
        assert made.error_code == 0, made
        self._await_leaders(name, partitions)
        return name

    def _await_leaders(self, name: str, partitions: int) -> None:
        """Until each partition answers: Apache Kafka names a leader before it leads."""
        wanted = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        for _ in range(500):
            answer = self.wire.ask(
                2, 6, replica_id=-1, topics=[{"name": name, "partitions": wanted}]
            )
            if all(row.error_code == 0 for row in answer.topics[0].partitions):
                return
            time.sleep(0.02)
        raise AssertionError(f"{name} has no leader")

    def create(
        self,
        name: str,
        partitions: int = 1,
        factor: int = 1,
        *,
        configs: dict[str, str] | None = None,
        assignments: list[tuple[int, list[int]]] | None = None,
        validate_only: bool = False,
        version: int = 7,
    ) -> Any:
        return self.wire.ask(
            19,
            version,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": factor,
                    "assignments": [
                        {"partition_index": index, "broker_ids": nodes}
                        for index, nodes in assignments or []
                    ],
                    "configs": [
                        {"name": key.replace("_", "."), "value": value}
                        for key, value in (configs or {}).items()
                    ],
                }
            ],
            timeout=10_000,
            validate_only=validate_only,
        ).topics[0]

    def topic_id(self, name: str) -> UUID:
        topic_id: UUID = self.wire.ask(3, 12, topics=[{"name": name}]).topics[0].topic_id
        return topic_id

    def produced(self, topic: str, records: bytes | bytearray | None, **fields: Any) -> object:
        """Error code, base offset, log start if it was taken, and which records were refused."""
        row = self.wire.produce(topic, records, **fields)
        errors = [error.batch_index for error in getattr(row, "record_errors", ())]
        start = None if row.error_code else row.log_start_offset
        return (int(row.error_code), row.base_offset, start, errors)

    def alter(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> int:
        answer = self.wire.ask(
            44,
            1,
            resources=[
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [
                        {"name": key, "config_operation": operation, "value": value}
                        for key, operation, value in changes
                    ],
                }
            ],
        )
        return int(answer.responses[0].error_code)

    def offsets(
        self, topic: str, timestamp: int, *, version: int = 11, isolation: int = 0, epoch: int = -1
    ) -> object:
        row = (
            self.wire.ask(
                2,
                version,
                replica_id=-1,
                isolation_level=isolation,
                topics=[
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": 0,
                                "timestamp": timestamp,
                                "current_leader_epoch": epoch,
                            }
                        ],
                    }
                ],
            )
            .topics[0]
            .partitions[0]
        )
        stamp = row.timestamp - NOW if row.timestamp > NOW - 10**9 else row.timestamp
        return (int(row.error_code), row.offset, stamp, getattr(row, "leader_epoch", None))

    def fetched(self, topic: str, offset: int, **fields: Any) -> object:
        row = self.wire.fetch(topic, offset, **fields)
        aborted = row.aborted_transactions if fields.get("isolation_level") else None
        return (
            int(row.error_code),
            row.high_watermark,
            row.last_stable_offset,
            row.log_start_offset,
            len(row.records or b""),
            None if aborted is None else [each.first_offset for each in aborted],
        )

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000, **held: Any) -> Any:
        """InitProducerId, asked until the coordinator is there and the last marker written."""
        self.find_coordinator(1, transactional_id)
        for _ in range(300):
            answer = self.wire.ask(
                22,
                4,
                transactional_id=transactional_id,
                transaction_timeout=timeout_ms,
                **{"producer_id": -1, "producer_epoch": -1, **held},
            )
            if answer.error_code not in (14, 15, 16, 51):
                break
            time.sleep(0.05)
        return answer

    def find_coordinator(self, key_type: int, key: str) -> None:
        """Wait until there is one: the first question makes its topic."""
        for _ in range(300):
            answer = self.wire.ask(10, 4, key_type=key_type, coordinator_keys=[key])
            if answer.coordinators[0].error_code not in (14, 15):
                return
            time.sleep(0.05)

    def add_partitions(
        self, transactional_id: str, producer: Any, topic: str, *indexes: int
    ) -> int:
        for _ in range(300):
            answer = self.wire.ask(
                24,
                3,
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[{"name": topic, "partitions": indexes or (0,)}],
            )
            (result,) = answer.results_by_topic_v3_and_below
            code = int(result.results_by_partition[0].partition_error_code)
            if code != 51:
                break
            time.sleep(0.05)
        return code

    def end(
        self, transactional_id: str, producer: Any, *, committed: bool, version: int = 3
    ) -> Any:
        for _ in range(300):
            answer = self.wire.ask(
                26,
                version,
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                committed=committed,
            )
            if answer.error_code != 51:
                break
            time.sleep(0.05)
        return answer


Scenario = Callable[[Peer], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(ask: Scenario) -> Scenario:
    SCENARIOS[ask.__name__] = ask
    return ask


def patched(raw: bytearray, position: int, value: bytes) -> bytearray:
    raw[position : position + len(value)] = value
    return raw


@scenario
def wrong_batches(peer: Peer) -> None:
    topic = peer.topic(max_message_bytes="2000")
    good = bytes(batch())
    peer.note("good", peer.produced(topic, good))
    peer.note("empty records", peer.produced(topic, b""))
    peer.note("two batches", peer.produced(topic, good + good))
    for cut in (1, 12, 30, 61, len(good) - 1):
        peer.note(f"first {cut} bytes", peer.produced(topic, good[:cut]))
    trailing = peer.produced(peer.topic("trailing"), good + b"\0\0\0")
    peer.note("trailing bytes", trailing)
    peer.note("magic 1", peer.produced(topic, patched(bytearray(good), 16, b"\1")))
    peer.note("magic 3", peer.produced(topic, patched(bytearray(good), 16, b"\3")))
    peer.note("bad crc", peer.produced(topic, patched(bytearray(good), 17, b"\1\2\3\4")))
    peer.note("length too large", peer.produced(topic, patched(bytearray(good), 8, b"\0\1\0\0")))
    peer.note("length too small", peer.produced(topic, patched(bytearray(good), 8, b"\0\0\0\5")))
    peer.note("base offset 7", peer.produced(topic, bytes(batch(base_offset=7))))
    peer.note("control", peer.produced(topic, bytes(batch(control=True))))
    peer.note("too large", peer.produced(topic, bytes(batch((b"k", b"v" * 4000)))))
    peer.note("timestamp 2 h ahead", peer.produced(topic, bytes(batch(timestamp=NOW + 7_200_000))))
    peer.note("timestamp -1", peer.produced(topic, bytes(batch(timestamp=-1))))
    peer.note("partition 7", peer.produced(topic, good, partition=7))
    peer.note("unknown topic", peer.produced(peer.name("none"), good))
    for acks in (2, -2, 1):
        peer.note(f"acks {acks}", peer.produced(topic, good, acks=acks))
    for version in (3, 5, 7, 8, 11, 12):
        peer.note(f"v{version}", int(peer.wire.produce(topic, good, version=version).error_code))
    for codec in Codec:
        peer.note(codec.name, peer.produced(topic, bytes(batch(codec=codec))))


@scenario
def produce_without_acks(peer: Peer) -> None:
    topic = peer.topic()
    peer.wire.produce(topic, bytes(batch()), acks=0)
    peer.note("good", peer.produced(topic, bytes(batch())))
    peer.wire.produce(peer.name("none"), bytes(batch()), acks=0)
    peer.note("an error closes", peer.wire.is_closed())


@scenario
def compacted_topic(peer: Peer) -> None:
    topic = peer.topic(cleanup_policy="compact")
    peer.note("without key", peer.produced(topic, bytes(batch((None, b"v")))))
    second = bytes(batch((b"k", b"v"), (None, b"v"), (b"k", b"v"), (None, b"w")))
    peer.note("some without key", peer.produced(topic, second))
    peer.note("with key", peer.produced(topic, bytes(batch())))
    peer.note("delete records", deleted(peer, topic, 1))


@scenario
def sequences(peer: Peer) -> None:
    topic = peer.topic()

    def send(sequence: int, *, producer: int = 900_000, epoch: int = 0, count: int = 1) -> object:
        return peer.produced(
            topic,
            bytes(
                batch(
                    *[(b"k", b"v")] * count,
                    producer_id=producer,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                )
            ),
        )

    peer.note("first at 5", send(5))
    for sequence in range(6, 13):
        peer.note(f"next {sequence}", send(sequence))
    for sequence in (12, 11, 10, 9, 8, 7, 6, 5, 4):
        peer.note(f"again {sequence}", send(sequence))
    peer.note("gap", send(20))
    peer.note("overlap", send(12, count=2))
    peer.note("same last, other count", send(11, count=2))
    peer.note("raised epoch at 3", send(3, epoch=1))
    peer.note("raised epoch at 0", send(0, epoch=1))
    peer.note("old epoch", send(13, epoch=0))
    peer.note("old epoch repeat", send(12, epoch=0))
    peer.note("new producer at 0", send(0, producer=900_001))
    peer.note("wrap start", send(2**31 - 2, producer=900_002, count=1))
    peer.note("wrap over", send(2**31 - 1, producer=900_002, count=3))
    peer.note("wrap repeat", send(2**31 - 1, producer=900_002, count=3))
    peer.note("after wrap", send(2, producer=900_002))
    peer.note("no sequence", send(-1, producer=900_003))
    peer.note("no epoch", send(0, producer=900_004, epoch=-1))
    peer.note("many", send(0, producer=900_005, count=10))
    peer.note("many again", send(0, producer=900_005, count=10))
    producers = peer.wire.ask(61, 0, topics=[{"name": topic, "partition_indexes": [0, 9]}])
    known, missing = producers.topics[0].partitions
    rows = [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch,
         p.current_txn_start_offset)
        for p in known.active_producers
    ]  # fmt: skip
    peer.note("producers", sorted(rows))
    peer.note("producers of no partition", int(missing.error_code))
    nowhere = peer.wire.ask(61, 0, topics=[{"name": peer.name("none"), "partition_indexes": [0]}])
    peer.note("producers of no topic", int(nowhere.topics[0].partitions[0].error_code))


@scenario
def transactional_batches_out_of_place(peer: Peer) -> None:
    topic = peer.topic()
    producer = peer.transactional(peer.name("id"))
    raw = bytes(
        batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
    )
    named = {"transactional_id": peer.name("id")}
    peer.note("not added, v9", peer.produced(topic, raw, **named))
    peer.note("no id, v9", peer.produced(topic, raw))
    peer.note("not added, v11", peer.produced(topic, raw, version=11, **named))
    peer.note("other id, v9", peer.produced(topic, raw, transactional_id=peer.name("other")))
    peer.note("added by v12", peer.produced(topic, raw, version=12, **named))
    other = bytes(
        batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=1,
        )
    )
    peer.note("plain batch inside", peer.produced(topic, other))
    peer.note("committed", int(peer.end(peer.name("id"), producer, committed=True).error_code))


@scenario
def log_append_time(peer: Peer) -> None:
    topic = peer.topic(message_timestamp_type="LogAppendTime")
    row = peer.wire.produce(topic, bytes(batch(timestamp=1000)))
    peer.note("answered", (int(row.error_code), row.log_append_time is not None))
    peer.note("far ahead", peer.produced(topic, bytes(batch(timestamp=NOW + 10**9))))


@scenario
def list_offsets(peer: Peer) -> None:
    topic = peer.topic()
    empty = peer.topic("empty")
    for name, where in (("empty", empty), ("full", topic)):
        if where is topic:
            times = [(NOW, NOW + 3, NOW + 1), (NOW + 2, NOW + 2), (NOW + 3, NOW + 3)]
            for codec, stamps in zip((Codec.NONE, Codec.GZIP, Codec.LZ4), times, strict=True):
                records = [Record(i, t, b"k", b"v", ()) for i, t in enumerate(stamps)]
                assert peer.produced(topic, bytes(build_batch(records, codec=codec)))
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, 0, NOW + 1, NOW + 2, NOW + 3, NOW + 4):
            label = timestamp if timestamp < NOW else f"now+{timestamp - NOW}"
            peer.note(f"{name} {label}", peer.offsets(where, timestamp))
        for version, timestamp in ((1, -1), (2, -3), (6, -3), (7, -3), (7, -4), (8, -5), (10, -6)):
            noted = peer.offsets(where, timestamp, version=version)
            peer.note(f"{name} {timestamp} v{version}", noted)
        peer.note(f"{name} committed", peer.offsets(where, -1, isolation=1))
        for epoch in (0, 1):
            peer.note(f"{name} epoch {epoch}", peer.offsets(where, -1, epoch=epoch))
    peer.note("no topic", peer.offsets(peer.name("none"), -1))
    peer.note("delete 2", deleted(peer, topic, 2))
    for timestamp in (-2, -3, 0):
        peer.note(f"after delete {timestamp}", peer.offsets(topic, timestamp))
    peer.note("delete all", deleted(peer, topic, -1))
    for timestamp in (-1, -2, -3, 0, NOW):
        label = timestamp if timestamp < NOW else "now"
        peer.note(f"all deleted {label}", peer.offsets(topic, timestamp))


def deleted(peer: Peer, topic: str, offset: int, partition: int = 0) -> object:
    answer = peer.wire.ask(
        21,
        2,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}],
        timeout=5000,
    )
    row = answer.topics[0].partitions[0]
    return (int(row.error_code), row.low_watermark)


@scenario
def delete_records(peer: Peer) -> None:
    topic = peer.topic()
    for _ in range(5):
        peer.produced(topic, bytes(batch()))
    for offset in (2, 1, 2, 0, -2, 6, 5, -1):
        peer.note(f"to {offset}#{len(peer.notes)}", deleted(peer, topic, offset))
    peer.note("no partition", deleted(peer, topic, 0, 9))
    peer.note("no topic", deleted(peer, peer.name("none"), 0))
    peer.note("fetch below", peer.fetched(topic, 1))
    peer.note("produce after", peer.produced(topic, bytes(batch())))


@scenario
def fetches(peer: Peer) -> None:
    topic = peer.topic()
    small = bytes(batch((b"k", b"v" * 100), timestamp=NOW))
    peer.note("empty", peer.fetched(topic, 0))
    for _ in range(10):
        peer.produced(topic, small)
    size = len(small)
    for offset in (-1, 0, 5, 9, 10, 11):
        peer.note(f"at {offset}", peer.fetched(topic, offset))
    for most in (0, 1, size - 1, size, 2 * size, 2 * size + 7):
        peer.note(f"partition max {most - size}", peer.fetched(topic, 0, partition_max_bytes=most))
        peer.note(f"max {most - size}", peer.fetched(topic, 0, max_bytes=most))
    peer.note("committed", peer.fetched(topic, 3, isolation_level=1))
    for epoch in (0, 1):
        peer.note(f"epoch {epoch}", peer.fetched(topic, 0, current_leader_epoch=epoch))
        peer.note(f"last epoch {epoch}", peer.fetched(topic, 0, last_fetched_epoch=epoch))
    peer.note("end, last epoch 0", peer.fetched(topic, 10, last_fetched_epoch=0))
    peer.note("no topic", peer.fetched(peer.name("none"), 0))
    for version in (4, 5, 7, 9, 11, 12):
        row = peer.wire.fetch(topic, 8, version=version)
        peer.note(f"v{version}", (int(row.error_code), row.high_watermark, len(row.records)))


@scenario
def fetch_sessions(peer: Peer) -> None:
    topic = peer.topic(partitions=2)
    peer.produced(topic, bytes(batch()))
    topic_id = peer.topic_id(topic)

    def ask(session: int, epoch: int, *wanted: tuple[int, int], forgotten: Any = ()) -> Any:
        return peer.wire.ask(
            1,
            15,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session,
            session_epoch=epoch,
            topics=[
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {"partition": index, "fetch_offset": at, "partition_max_bytes": 1 << 20}
                        for index, at in wanted
                    ],
                }
            ]
            if wanted
            else [],
            forgotten_topics_data=[{"topic_id": topic_id, "partitions": forgotten}]
            if forgotten
            else [],
        )

    def noted(answer: Any) -> object:
        rows = [
            (row.partition_index, int(row.error_code), row.high_watermark, len(row.records or b""))
            for each in answer.responses
            for row in each.partitions
        ]
        return (int(answer.error_code), answer.session_id == session, sorted(rows))

    opened = ask(0, 0, (0, 0), (1, 0))
    session = opened.session_id
    peer.note("opened", (session != 0, noted(opened)))
    peer.note("moved on", noted(ask(session, 1, (0, 1))))
    peer.note("no news", noted(ask(session, 2)))
    peer.produced(topic, bytes(batch()), partition=1)
    peer.note("news", noted(ask(session, 3)))
    peer.note("same again", noted(ask(session, 4)))
    peer.note("old epoch", noted(ask(session, 2)))
    peer.note("epoch again", noted(ask(session, 5)))
    peer.note("forgotten", noted(ask(session, 6, forgotten=[1])))
    peer.note("out of range", noted(ask(session, 7, (0, 99))))
    peer.note("still out of range", noted(ask(session, 8)))
    peer.note("unknown partition added", noted(ask(session, 9, (9, 0), (0, 1))))
    peer.note("unknown id", noted(ask(session + 1, 1)))
    peer.note("closed", noted(ask(session, -1, (0, 0))))
    peer.note("after closing", noted(ask(session, 10)))
    peer.note("sessionless", noted(ask(0, -1, (0, 0))))
    peer.note("empty open", noted(ask(0, 0)))
    topic_id = UUID(int=12345)
    peer.note("unknown topic id", noted(ask(0, -1, (0, 0))))


@scenario
def leader_epochs(peer: Peer) -> None:
    topic = peer.topic()
    for when in ("empty", "full"):
        for epoch in (-1, 0, 1, 5):
            for current in (-1, 0, 1):
                row = (
                    peer.wire.ask(
                        23,
                        4,
                        replica_id=-1,
                        topics=[
                            {
                                "topic": topic,
                                "partitions": [
                                    {
                                        "partition": 0,
                                        "current_leader_epoch": current,
                                        "leader_epoch": epoch,
                                    }
                                ],
                            }
                        ],
                    )
                    .topics[0]
                    .partitions[0]
                )
                noted = (int(row.error_code), row.leader_epoch, row.end_offset)
                peer.note(f"{when}: {epoch} asked under {current}", noted)
        peer.produced(topic, bytes(batch()))


@scenario
def creating_topics(peer: Peer) -> None:
    def made(line: str, *arguments: Any, **fields: Any) -> None:
        topic = peer.create(*arguments, **fields)
        described = (int(topic.error_code), topic.num_partitions, topic.replication_factor)
        peer.note(line, described)

    made("good", peer.name("a"), 3)
    made("exists", peer.name("a"), 3)
    made("validate only", peer.name("v"), 2, validate_only=True)
    made("validate only of what exists", peer.name("a"), validate_only=True)
    made("defaults", peer.name("d"), -1, -1)
    made("no partitions", peer.name("e"), 0)
    made("minus two partitions", peer.name("e"), -2)
    made("two replicas", peer.name("e"), 1, 2)
    made("no replicas", peer.name("e"), 1, 0)
    made("minus two replicas", peer.name("e"), 1, -2)
    for name in ("", ".", "..", "a b", "a/b", "é", "x" * 249, "x" * 250):
        made(f"name {name[:5]!r}{len(name)}", name)
    made("dotted", f"{peer.name('dot')}.b")
    made("underscored", f"{peer.name('dot')}_b")
    made("own metadata", "__cluster_metadata")
    made("unknown key", peer.name("e"), configs={"no_such_key": "1"})
    for key, value in (
        ("retention.ms", "abc"), ("retention.ms", "-2"), ("cleanup.policy", "eat"),
        ("cleanup.policy", "compact,delete"), ("segment.bytes", "10"),
        ("min.insync.replicas", "0"), ("compression.type", "brotli"),
        ("message.timestamp.type", "Never"), ("min.cleanable.dirty.ratio", "1.5"),
        ("max.message.bytes", "-1"), ("max.message.bytes", "1.5"), ("retention.bytes", ""),
        ("flush.messages", "0"), ("unclean.leader.election.enable", "maybe"),
        ("compression.gzip.level", "12"), ("segment.ms", "0"), ("local.retention.ms", "-2"),
        ("remote.storage.enable", "true"), ("min.compaction.lag.ms", "-1"),
        ("max.compaction.lag.ms", "0"), ("index.interval.bytes", "-1"), ("preallocate", "true"),
        ("file.delete.delay.ms", "-1"), ("segment.jitter.ms", "5"),
        ("message.timestamp.after.max.ms", "-1"),
    ):  # fmt: skip
        made(f"{key}={value}", peer.name("e"), configs={key: value}, validate_only=True)
    both = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    made("lags crossed", peer.name("e"), configs=both, validate_only=True)
    made("assigned", peer.name("m"), -1, -1, assignments=[(0, [1]), (1, [1])])
    for line, rows in (
        ("gap", [(0, [1]), (2, [1])]), ("unknown node", [(0, [7])]), ("twice", [(0, [1, 1])]),
        ("none", [(0, [])]), ("not from 0", [(1, [1])]), ("same partition", [(0, [1]), (0, [1])]),
    ):  # fmt: skip
        made(f"assigned {line}", peer.name("e"), -1, -1, assignments=rows)
    made("assigned and counted", peer.name("e"), 1, 1, assignments=[(0, [1])])


@scenario
def widening_and_deleting(peer: Peer) -> None:
    topic = peer.topic(partitions=2)

    def widened(line: str, name: str, count: int, assigned: Any = None, **fields: Any) -> None:
        row = {"name": name, "count": count}
        row["assignments"] = None if assigned is None else [{"broker_ids": a} for a in assigned]
        answer = peer.wire.ask(37, 3, topics=[row], timeout=5000, **fields)
        peer.note(f"widen {line}", int(answer.results[0].error_code))

    widened("to 3", topic, 3)
    widened("to 3 again", topic, 3)
    widened("to 1", topic, 1)
    widened("to 0", topic, 0)
    widened("validate", topic, 9, validate_only=True)
    widened("no topic", peer.name("none"), 9)
    widened("assigned", topic, 4, [[1]])
    widened("wrong count assigned", topic, 6, [[1]])
    widened("unknown node", topic, 5, [[9]])
    widened("two replicas", topic, 5, [[1, 1]])
    widened("none assigned", topic, 5, [])
    widened("empty row", topic, 5, [[]])
    twice = [{"name": topic, "count": 8, "assignments": None}] * 2
    answer = peer.wire.ask(37, 3, topics=twice, timeout=5000)
    peer.note("widen twice", [int(row.error_code) for row in answer.results])

    def gone(line: str, *rows: dict[str, Any], version: int = 6) -> None:
        answer = peer.wire.ask(20, version, topics=rows, timeout=5000)
        codes = sorted(int(row.error_code) for row in answer.responses)
        peer.note(f"delete {line}", codes)

    other = peer.topic("other")
    gone("twice", {"name": other}, {"name": other})
    gone("unknown", {"name": peer.name("none")})
    gone("unknown id", {"name": None, "topic_id": UUID(int=99999)})
    gone("by neither", {"name": None, "topic_id": None})
    gone("by both", {"name": other, "topic_id": peer.topic_id(other)})
    gone("by id", {"name": None, "topic_id": peer.topic_id(other)})
    gone("by name", {"name": topic})
    gone("again", {"name": topic})


@scenario
def altering_configs(peer: Peer) -> None:
    topic = peer.topic()
    for kind, name, changes in (
        (TOPIC, topic, [("retention.ms", SET, "1000")]),
        (TOPIC, topic, [("retention.ms", SET, "x")]),
        (TOPIC, topic, [("retention.ms", SET, None)]),
        (TOPIC, topic, [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
        (TOPIC, topic, [("no.such", SET, "1")]),
        (TOPIC, topic, [("no.such", DELETE, None)]),
        (TOPIC, topic, [("retention.ms", APPEND, "1")]),
        (TOPIC, topic, [("cleanup.policy", APPEND, "compact")]),
        (TOPIC, topic, [("cleanup.policy", SUBTRACT, "delete")]),
        (TOPIC, topic, [("cleanup.policy", SUBTRACT, "compact")]),
        (TOPIC, topic, [("cleanup.policy", SET, "")]),
        (TOPIC, topic, [("retention.ms", DELETE, None)]),
        (TOPIC, topic, [("retention.ms", 9, "1")]),
        (TOPIC, topic, []),
        (TOPIC, peer.name("none"), [("retention.ms", SET, "1")]),
        (TOPIC, "", [("retention.ms", SET, "1")]),
        (BROKER, "1", [("log.retention.ms", SET, "99999999")]),
        (BROKER, "1", [("log.retention.ms", DELETE, None)]),
        (BROKER, "", [("log.retention.ms", SET, "88888888")]),
        (BROKER, "", [("log.retention.ms", DELETE, None)]),
        (BROKER, "1", [("node.id", SET, "4")]),
        (BROKER, "7", [("log.retention.ms", SET, "4")]),
        (BROKER, "x", [("log.retention.ms", SET, "4")]),
        (GROUP, peer.name("g"), [("consumer.session.timeout.ms", SET, "46000")]),
        (GROUP, peer.name("g"), [("consumer.session.timeout.ms", SET, "1")]),
        (GROUP, peer.name("g"), [("no.such", SET, "1")]),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "46000")]),
        (99, "x", [("a", SET, "1")]),
    ):  # fmt: skip
        line = f"{kind} {name and name[-6:]} {changes}"
        peer.note(line, peer.alter(kind, name, *changes))
    for line, kind, name, keys in (
        ("topic", TOPIC, topic, ["cleanup.policy", "no.such", "segment.bytes"]),
        ("unset", TOPIC, topic, ["retention.ms"]),
        ("group", GROUP, peer.name("g"), ["consumer.session.timeout.ms"]),
        ("no topic", TOPIC, peer.name("none"), None),
        ("bad name", TOPIC, "a b", None),
        ("other broker", BROKER, "7", None),
        ("no type", 99, "x", None),
    ):
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        answer = peer.wire.ask(32, 4, resources=[asked], include_synonyms=True).results[0]
        rows = [
            (row.name, row.value, row.config_source, row.read_only, row.config_type,
             [synonym.source for synonym in row.synonyms])
            for row in answer.configs
        ]  # fmt: skip
        peer.note(f"described {line}", (int(answer.error_code), sorted(rows)))
    asked = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
    answer = peer.wire.ask(32, 4, resources=[asked]).results[0]
    values = sorted((row.name, row.value, row.config_type) for row in answer.configs)
    for name, value, kind in values:
        peer.note(f"default {name}", (value, kind))


@scenario
def transactions(peer: Peer) -> None:
    topic = peer.topic(partitions=2)
    name = peer.name("id")

    def write(producer: Any, sequence: int, **fields: Any) -> object:
        raw = batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return peer.produced(topic, bytes(raw), transactional_id=name, **fields)

    def ended(producer: Any, **fields: Any) -> int:
        return int(peer.end(name, producer, **fields).error_code)

    first = peer.transactional(name)
    peer.note("first", (int(first.error_code), first.producer_epoch))
    peer.note("end of nothing, commit", ended(first, committed=True))
    peer.note("end of nothing, abort", ended(first, committed=False))
    peer.note("added", peer.add_partitions(name, first, topic, 0))
    peer.note("added again", peer.add_partitions(name, first, topic, 0))
    peer.note("added unknown", peer.add_partitions(name, first, topic, 7))
    peer.note("written", write(first, 0))
    peer.note("open", peer.fetched(topic, 0, isolation_level=1))
    peer.note("open latest", peer.offsets(topic, -1, isolation=1))
    peer.note("aborted", ended(first, committed=False))
    await_stable(peer, topic, 2)
    peer.note("aborted again", ended(first, committed=False))
    peer.note("commit after abort", ended(first, committed=True))
    peer.note("after abort", peer.fetched(topic, 0, isolation_level=1))
    second = peer.transactional(name)
    peer.note("second", (int(second.error_code), second.producer_epoch))
    peer.note("same id", second.producer_id == first.producer_id)
    peer.note("fenced end v3", ended(first, committed=True))
    peer.note("fenced end v1", ended(first, committed=True, version=1))
    peer.note("fenced add", peer.add_partitions(name, first, topic, 0))
    held = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
    peer.note("fenced init", int(peer.transactional(name, **held).error_code))
    unknown = {"producer_id": 777_777, "producer_epoch": 0}
    peer.note("init by another id", int(peer.transactional(name, **unknown).error_code))
    held = {"producer_id": second.producer_id, "producer_epoch": second.producer_epoch}
    third = peer.transactional(name, **held)
    peer.note("bump", (int(third.error_code), third.producer_epoch - second.producer_epoch))
    peer.note("time-out too long", int(peer.transactional(name, timeout_ms=10**9).error_code))
    peer.note("time-out 0", int(peer.transactional(name, timeout_ms=0).error_code))
    peer.note("empty id", int(peer.transactional("").error_code))
    peer.note("unknown id add", peer.add_partitions(peer.name("no"), third, topic, 0))
    missing = peer.end(peer.name("no"), third, committed=True)
    peer.note("unknown id end", int(missing.error_code))


def await_stable(peer: Peer, topic: str, offset: int) -> None:
    for _ in range(200):
        if peer.wire.fetch(topic, 0, isolation_level=1).last_stable_offset >= offset:
            return
        time.sleep(0.02)
    raise AssertionError(f"{topic} is not stable up to {offset}")


@scenario
def transactions_of_version_two(peer: Peer) -> None:
    topic = peer.topic()
    name = peer.name("id")
    producer = peer.transactional(name)

    def write(holder: Any, sequence: int) -> object:
        raw = batch(
            producer_id=holder.producer_id,
            producer_epoch=holder.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return peer.produced(topic, bytes(raw), transactional_id=name, version=12)

    peer.note("written", write(producer, 0))
    peer.note("more", write(producer, 1))
    answer = peer.end(name, producer, committed=True, version=5)
    bumped = (int(answer.error_code), answer.producer_epoch - producer.producer_epoch)
    peer.note("end", bumped)
    await_stable(peer, topic, 3)
    again = peer.end(name, producer, committed=True, version=5)
    peer.note("end again", (int(again.error_code), again.producer_epoch - producer.producer_epoch))
    peer.note("abort instead", int(peer.end(name, producer, committed=False, version=5).error_code))
    peer.note("old epoch", write(producer, 2))
    peer.note("new epoch at 5", write(answer, 5))
    peer.note("new epoch at 0", write(answer, 0))
    aborted = peer.end(name, answer, committed=False, version=5)
    peer.note("abort", (int(aborted.error_code), aborted.producer_epoch - producer.producer_epoch))
    await_stable(peer, topic, 5)
    empty = peer.end(name, aborted, committed=False, version=5)
    peer.note(
        "abort nothing", (int(empty.error_code), empty.producer_epoch - aborted.producer_epoch)
    )
    peer.note("commit nothing", int(peer.end(name, empty, committed=True, version=5).error_code))
    described = peer.wire.ask(65, 0, transactional_ids=[name, peer.name("no"), ""])
    rows = [
        (int(row.error_code), row.transaction_state, [each.topic for each in row.topics])
        for row in described.transaction_states
    ]
    peer.note("described", rows)
    for states in ([], ["Ongoing"], ["Nonsense"]):
        listed = peer.wire.ask(66, 1, state_filters=states, producer_id_filters=[])
        mine = [
            row.transaction_state
            for row in listed.transaction_states
            if row.transactional_id.startswith(peer.name(""))
        ]
        peer.note(f"listed {states}", (int(listed.error_code), mine, listed.unknown_state_filters))


@scenario
def offsets_in_transactions(peer: Peer) -> None:
    topic = peer.topic()
    name, group = peer.name("id"), peer.name("g")
    producer = peer.transactional(name)
    fields = {
        "transactional_id": name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "group_id": group,
    }

    def commit(offset: int, version: int = 3, **other: Any) -> int:
        for _ in range(300):
            answer = peer.wire.ask(
                28,
                version,
                **{
                    **fields,
                    "generation_id": -1,
                    "member_id": "",
                    "topics": [
                        {
                            "name": topic,
                            "partitions": [{"partition_index": 0, "committed_offset": offset}],
                        }
                    ],
                    **other,
                },
            )
            code = int(answer.topics[0].partitions[0].error_code)
            if code not in (14, 15, 16, 51):
                break
            time.sleep(0.05)
        return code

    def committed(*, stable: bool) -> object:
        answer = peer.wire.ask(
            9,
            8,
            groups=[{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}],
            require_stable=stable,
        ).groups[0]
        row = answer.topics[0].partitions[0]
        return (int(answer.error_code), int(row.error_code), row.committed_offset)

    peer.find_coordinator(0, group)
    added = peer.wire.ask(25, 3, **fields)
    while added.error_code in (14, 15, 16, 51):
        time.sleep(0.05)
        added = peer.wire.ask(25, 3, **fields)
    peer.note("added", int(added.error_code))
    peer.note("commit", commit(5))
    peer.note("pending, stable", committed(stable=True))
    peer.note("pending, any", committed(stable=False))
    peer.note("ended", int(peer.end(name, producer, committed=True).error_code))
    for _ in range(300):
        if committed(stable=True) == (0, 0, 5):
            break
        time.sleep(0.02)
    peer.note("after", committed(stable=True))
    peer.note("old epoch", commit(6, producer_epoch=producer.producer_epoch - 1))
    peer.note("with a generation", commit(6, generation_id=3, member_id="m"))
    peer.note("version 5 adds by itself", commit(7, version=5))
    peer.note("aborted", int(peer.end(name, producer, committed=False, version=5).error_code))


@scenario
def the_rest_of_administration(peer: Peer) -> None:
    topic = peer.topic()
    for kind in (0, 1, 2):
        for index in (0, 9):
            answer = peer.wire.ask(
                43,
                2,
                election_type=kind,
                topic_partitions=[{"topic": topic, "partitions": [index]}],
                timeout=5000,
            )
            codes = {
                int(row.error_code)
                for each in answer.replica_election_results
                for row in each.partition_result
            }
            peer.note(f"elect {kind} {index}", codes | {int(answer.error_code)})
    for replicas in ([1], [7], [1, 1], [], None):
        answer = peer.wire.ask(
            45,
            1,
            timeout=5000,
            topics=[{"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}],
        )
        moved = [int(row.error_code) for each in answer.responses for row in each.partitions]
        peer.note(f"reassign {replicas}", (int(answer.error_code), moved))
    answer = peer.wire.ask(46, 0, timeout=5000, topics=None)
    peer.note("reassignments", (int(answer.error_code), len(answer.topics)))
    user = peer.name("user")
    for line, entity, key, value, remove in (
        ("set", [("user", user)], "producer_byte_rate", 1e6, False),
        ("fraction", [("user", user)], "producer_byte_rate", 1.5, False),
        ("zero", [("user", user)], "producer_byte_rate", 0.0, False),
        ("negative", [("user", user)], "consumer_byte_rate", -1.0, False),
        ("unknown key", [("user", user)], "nonsense", 1.0, False),
        ("unknown kind", [("host", user)], "producer_byte_rate", 1.0, False),
        ("no entity", [], "producer_byte_rate", 1.0, False),
        ("ip", [("ip", "127.0.0.9")], "connection_creation_rate", 5.0, False),
        ("bad ip", [("ip", "not an address")], "connection_creation_rate", 5.0, False),
        ("wrong rate for ip", [("ip", "127.0.0.9")], "producer_byte_rate", 5.0, False),
        ("remove ip", [("ip", "127.0.0.9")], "connection_creation_rate", 0.0, True),
        ("both", [("user", user), ("client-id", "c")], "request_percentage", 50.0, False),
        ("remove", [("user", user)], "producer_byte_rate", 0.0, True),
        ("remove absent", [("user", user)], "consumer_byte_rate", 0.0, True),
    ):
        entries = [
            {
                "entity": [{"entity_type": k, "entity_name": n} for k, n in entity],
                "ops": [{"key": key, "value": value, "remove": remove}],
            }
        ]
        answer = peer.wire.ask(49, 1, entries=entries)
        peer.note(f"quota {line}", [int(row.error_code) for row in answer.entries])
    for match_type, match in ((0, user), (1, None), (2, None)):
        for strict in (False, True):
            component = {"entity_type": "user", "match_type": match_type, "match": match}
            answer = peer.wire.ask(48, 1, components=[component], strict=strict)
            noted = [
                (sorted((e.entity_type, e.entity_name) for e in entry.entity),
                 [(v.key, v.value) for v in entry.values])
                for entry in answer.entries or ()
            ]  # fmt: skip
            peer.note(f"quotas {match_type} {strict}", (int(answer.error_code), noted))
    for asked in (topic, peer.name("none"), "a b"):
        answer = peer.wire.ask(75, 0, topics=[{"name": asked}], response_partition_limit=10)
        row = answer.topics[0]
        rows = [(p.partition_index, p.leader_id, p.leader_epoch) for p in row.partitions]
        peer.note(f"describe {asked[-6:]}", (int(row.error_code), rows, row.is_internal))
    cluster = peer.wire.ask(60, 1, endpoint_type=1)
    peer.note("cluster", (int(cluster.error_code), cluster.controller_id, len(cluster.brokers)))
    cluster = peer.wire.ask(60, 1, endpoint_type=2)
    peer.note("cluster of controllers", int(cluster.error_code))
    cluster = peer.wire.ask(60, 1, endpoint_type=7)
    peer.note("cluster of nothing", int(cluster.error_code))
    dirs = peer.wire.ask(35, 4, topics=[{"topic": topic, "partitions": [0]}])
    found = [
        (int(row.error_code), [(p.partition_index, p.partition_size, p.offset_lag) for p in
         t.partitions]) for row in dirs.results for t in row.topics
    ]  # fmt: skip
    peer.note("log dirs", (int(dirs.error_code), found))
    for name in ("a b", "", "x" * 250, peer.name("none")):
        answer = peer.wire.ask(
            3, 12, topics=[{"name": name}], allow_auto_topic_creation=False
        ).topics[0]
        peer.note(f"metadata {name[-6:]!r}", (int(answer.error_code), answer.name == name))
    by_id = peer.wire.ask(3, 12, topics=[{"name": None, "topic_id": UUID(int=77)}]).topics[0]
    peer.note("metadata by id", (int(by_id.error_code), by_id.name, by_id.topic_id))


@pytest.fixture(scope="module")
def peers() -> Iterator[tuple[Peer, Peer]]:
    try:
        kafka = ApacheKafka(heap="512m", settings=["auto.create.topics.enable=false"])
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    ours = EmbeddedBroker(settings={"auto.create.topics.enable": "false"})
    with kafka, ours:
        port = int(ours.bootstrap.rpartition(":")[2])
        pair = Peer(kafka.port), Peer(port)
        yield pair
        for peer in pair:
            peer.wire.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_answer_alike(peers: tuple[Peer, Peer], name: str) -> None:
    theirs, ours = peers
    for peer in peers:
        peer.begin(name)
        SCENARIOS[name](peer)
    assert theirs.notes.keys() == ours.notes.keys()
    expected = dict(theirs.notes)
    for (where, line), deliberate in DELIBERATE.items():
        if where == name:
            assert expected[line] != deliberate.ours, f"{line} is no longer a difference"
            expected[line] = deliberate.ours
    assert ours.notes == expected
