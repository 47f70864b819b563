"""Two brokers that are asked the same: Apache Kafka and Penstock.

A scenario asks one peer and notes what matters of each answer. Both notes are compared line by
line, except those that a module names as deliberate, with what Penstock answers there and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from penstock.testing.embedded import EmbeddedBroker
from tests.support.apache_kafka import ApacheKafka, PeerUnavailableError
from tests.support.wire import Wire

if TYPE_CHECKING:
    from uuid import UUID

Notes = dict[str, Any]


class Peer:
    """One broker and what a scenario asks of it."""

    def __init__(self, port: int, now: int) -> None:
        self.port = port
        self.now = now
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
            answer = self.wire.call(
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
        return self.wire.call(
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
        topic_id: UUID = self.wire.call(3, 12, topics=[{"name": name}]).topics[0].topic_id
        return topic_id

    def produced(self, topic: str, records: bytes | bytearray | None, **fields: Any) -> object:
        """Error code, base offset, log start if it was taken, and which records were refused."""
        row = self.wire.produce(topic, records, **fields)
        errors = [error.batch_index for error in getattr(row, "record_errors", ())]
        start = None if row.error_code else row.log_start_offset
        return (int(row.error_code), row.base_offset, start, errors)

    def alter(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> int:
        answer = self.wire.call(
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
            self.wire.call(
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
        stamp = row.timestamp - self.now if row.timestamp > self.now - 10**9 else row.timestamp
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
            answer = self.wire.call(
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
            answer = self.wire.call(10, 4, key_type=key_type, coordinator_keys=[key])
            if answer.coordinators[0].error_code not in (14, 15):
                return
            time.sleep(0.05)

    def await_group(self, group_id: str) -> None:
        """Until its coordinator answers: Apache Kafka names one before it has read its log."""
        self.find_coordinator(0, group_id)
        for _ in range(300):
            if self.wire.call(9, 7, group_id=group_id, topics=None).error_code not in (14, 15, 16):
                return
            time.sleep(0.05)
        raise AssertionError(f"{group_id} has no coordinator")

    def add_partitions(
        self, transactional_id: str, producer: Any, topic: str, *indexes: int
    ) -> int:
        for _ in range(300):
            answer = self.wire.call(
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
            answer = self.wire.call(
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

    def deleted(self, topic: str, offset: int, partition: int = 0) -> object:
        answer = self.wire.call(
            21,
            2,
            topics=[
                {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
            ],
            timeout=5000,
        )
        row = answer.topics[0].partitions[0]
        return (int(row.error_code), row.low_watermark)


Scenario: TypeAlias = Callable[[Peer], None]
Deliberate: TypeAlias = Mapping[str, tuple[object, str]]  # by line: our answer, and the reason
AskBoth: TypeAlias = Callable[[Scenario, Deliberate], None]


@pytest.fixture(scope="session")
def peers() -> Iterator[tuple[Peer, Peer]]:
    """Theirs and ours."""
    try:
        kafka = ApacheKafka(heap="512m", settings=["auto.create.topics.enable=false"])
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
    ours = EmbeddedBroker(settings={"auto.create.topics.enable": "false"})
    now = int(time.time() * 1000)
    with kafka, ours:
        port = int(ours.bootstrap.rpartition(":")[2])
        pair = Peer(kafka.port, now), Peer(port, now)
        yield pair
        for peer in pair:
            peer.wire.close()


@pytest.fixture
def ask_both(peers: tuple[Peer, Peer]) -> AskBoth:
    """Run a scenario against both; they must answer alike but for what is deliberate."""

    def ask(scenario: Scenario, deliberate: Deliberate) -> None:
        theirs, ours = peers
        for peer in peers:
            peer.begin(scenario.__name__)
            scenario(peer)
        assert theirs.notes.keys() == ours.notes.keys()
        expected = dict(theirs.notes)
        for line, (answer, _) in deliberate.items():
            assert expected[line] != answer, f"{line} is no longer a difference"
            expected[line] = answer
        assert ours.notes == expected

    return ask
