"""Clients that change a simulated cluster: its topics, settings and voters; the starts of logs.

What they changed is in the history, and is compared with what every broker knows in the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.coordination.controller.events import ConfigScope
from penstock.errors import ErrorCode, Refused
from penstock.link.cluster_admin import VoterPlace, add_voter, describe_quorum, remove_voter
from penstock.link.operation import FAILURES, request_of
from penstock.link.topic_admin import add_partitions, alter_configs, delete_topic
from penstock.model import Offset, TopicPartition
from penstock.protocol.messages.quorum import ListenerEndpoint
from penstock.protocol.messages.topics import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    RecordsToDelete,
)
from tests.support.cluster_simulation.clients import LINK, Client, IdempotentProducer, Reader
from tests.support.cluster_simulation.cluster import KAFKA_PORT
from tests.support.history import Changed, History, Outcome, Produced, Read, Seen

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from penstock.link.aio import AsyncCluster
    from penstock.node.run_broker import RunningBroker
    from tests.support.cluster_simulation.cluster import Cluster

TOPICS_MAX: Final = 5  # that exist at a time
PARTITIONS_MAX: Final = 4
SETTING: Final = "segment.ms"
VOTERS: Final = "voters"
TRIMMED: Final = TopicPartition("trimmed", 0)


class Administrator(Client):
    """Creates, widens and deletes topics, changes a setting and the voters, step by step."""

    def __init__(
        self, cluster: Cluster, history: History, name: str, *, topic: str, changes_voters: bool
    ) -> None:
        super().__init__(cluster, history, name)
        self.topic = topic
        self.acknowledged = 0
        self._changes_voters = changes_voters
        self._extra: dict[str, int] = {}  # topics that may exist, with their partitions

    async def run(self) -> None:
        """Change until it is to stop."""
        link, rng = self.link(), self.world.rng
        number = 0
        while not self.is_stopping:
            await asyncio.sleep(rng.uniform(0.2, 1.0))
            number += 1
            try:
                await self._change_something(link, number)
                self.acknowledged += 1
            except FAILURES as failure:
                self.note(f"change {number} failed: {type(failure).__name__}")
                self.check_refusal(failure, "change")
        await link.close()

    async def _change_something(self, link: AsyncCluster, number: int) -> None:
        rng = self.world.rng
        kind = rng.random()
        if kind < 0.3 and len(self._extra) < TOPICS_MAX:
            await self._create_extra(link, f"extra-{number}", rng.randint(1, 2))
        elif kind < 0.45 and self._extra:
            name = rng.choice(sorted(self._extra))
            del self._extra[name]
            await self._note_change(f"topic {name}", "", link.run(delete_topic(name)))
        elif kind < 0.6 and (narrow := self._narrow_topics()):
            name = rng.choice(narrow)
            self._extra[name] += 1
            count = self._extra[name]
            change = link.run(add_partitions(name, count))
            await self._note_change(f"topic {name}", str(count), change)
        elif kind < 0.75 and self._changes_voters:
            await self._change_voters(link)
        else:
            value = str(1_000_000 + number)
            change = link.run(alter_configs(self.topic, {SETTING: value}))
            await self._note_change(SETTING, value, change)

    def _narrow_topics(self) -> list[str]:
        return sorted(name for name, count in self._extra.items() if count < PARTITIONS_MAX)

    async def _note_change(self, key: str, value: str, change: Coroutine[Any, Any, object]) -> None:
        row = Changed(key, value)
        began_s = self.world.now_s
        try:
            await change
            row.outcome = Outcome.ACKNOWLEDGED
        finally:
            if self.world.now_s - began_s >= LINK.request_timeout_ms / 1000:
                # It was sent again; a broker that was paused may carry out the first one later.
                self.history.add(Changed(key, value))
            self.history.add(row)
            self.note(f"{key} is {value or 'deleted'}: {row.outcome}")

    async def _create_extra(self, link: AsyncCluster, name: str, partitions: int) -> None:
        self._extra[name] = partitions
        change = self.create(link, name, partitions=partitions)
        await self._note_change(f"topic {name}", str(partitions), change)

    async def create(self, link: AsyncCluster, name: str, *, partitions: int) -> None:
        """Create a topic with three replicas; Refused or OSError: unknown or not created."""
        topic = CreatableTopic(name, partitions, 3)
        request = request_of(CREATE_TOPICS, CreateTopicsRequest([topic], timeout_ms=5_000))
        response = await link.run(lambda routes: routes.send_to_any(request))
        code = response.topics[0].error_code
        if code is not ErrorCode.none:
            raise Refused(code, f"create {name}: {code.name} {response.topics[0].error_message}")

    async def _change_voters(self, link: AsyncCluster) -> None:
        """Take the vote of one broker; the next time, give it back."""
        quorum = await link.run(describe_quorum())
        voters = {row.replica_id: row for row in quorum.current_voters}
        observers = {row.replica_id: row for row in quorum.observers}
        if len(voters) == len(self.cluster.brokers):
            number = self.world.rng.choice(sorted(voters))
            place = VoterPlace(number, voters[number].replica_directory_id)
            change, after = remove_voter(place), set(voters) - {number}
        elif observers:
            number = self.world.rng.choice(sorted(observers))
            host = self.cluster.brokers[number - 1].host
            listeners = [ListenerEndpoint("PLAINTEXT", host, KAFKA_PORT)]
            place = VoterPlace(number, observers[number].replica_directory_id, listeners)
            change, after = add_voter(place), {*voters, number}
        else:
            return
        await self._note_change(VOTERS, str(sorted(after)), link.run(change))

    def see(self, running: RunningBroker) -> None:
        """Note in the history what a broker knows of everything that was changed."""
        topics = running.image.state.topics
        for key in sorted({row.key for row in self.history.of(Changed)}):
            if key == SETTING:
                overrides = running.image.state.overrides(ConfigScope.TOPIC, self.topic)
                value = overrides.get(SETTING, "")
            elif key == VOTERS:
                voters = running.broker.quorum.raft.voters.voters
                value = str(sorted(voter.key.node_id for voter in voters))
            else:
                topic = topics.get(key.removeprefix("topic "))
                value = "" if topic is None else str(len(topic.partitions))
            self.history.add(Seen(key, value))


class Trimmer(IdempotentProducer):
    """Writes to a topic of its own, and removes its oldest records now and then."""

    def __init__(self, cluster: Cluster, name: str, *, given_ids: list[tuple[int, int]]) -> None:
        super().__init__(cluster, History(), name, partitions=[TRIMMED], given_ids=given_ids)
        self._deleted_below = Offset(0)  # acknowledged
        self._requested_below = Offset(0)

    async def work(self, link: AsyncCluster) -> None:
        """Write; then, by chance, remove what is before one of the last records."""
        await self.send(link, None)
        offsets = [row.offset for row in self.history.of(Produced) if row.offset >= 0]
        if offsets and self.world.rng.random() < 0.2:
            await self._delete_below(link, Offset(self.world.rng.choice(offsets[-10:])))

    async def _delete_below(self, link: AsyncCluster, offset: Offset) -> None:
        body = DeleteRecordsRequest(
            [DeleteRecordsTopic(TRIMMED.topic, [RecordsToDelete(0, offset)])], timeout_ms=2_000
        )

        def read(
            response: DeleteRecordsResponse,
        ) -> Iterator[tuple[TopicPartition, Offset | Refused]]:
            (row,) = response.topics[0].partitions
            is_done = row.error_code is ErrorCode.none
            yield TRIMMED, offset if is_done else Refused(row.error_code, "delete records")

        self._requested_below = max(self._requested_below, offset)
        await link.run(
            lambda routes: routes.for_each_leader(
                "delete records", [TRIMMED], lambda _: request_of(DELETE_RECORDS, body), read
            )
        )
        self._deleted_below = max(self._deleted_below, offset)
        self.note(f"deleted below {offset}")

    def broken(self, reader: Reader, *, may_return: bool) -> list[str]:
        """What is wrong, after `reader` has read what is left.

        `may_return`: all that were in sync may have crashed before the start was in a checkpoint.
        """
        read = {row.value: row.offset for row in reader.history.of(Read)}
        broken = [
            f"{value} is at {offset}, below {self._deleted_below}, where all was deleted"
            for value, offset in read.items()
            if offset < self._deleted_below and not may_return
        ]
        kept = [
            row
            for row in self.history.of(Produced)
            if row.outcome == Outcome.ACKNOWLEDGED and row.offset >= self._requested_below
        ]
        broken += [
            f"{row.value} was acknowledged at {row.offset}, was not deleted, and is lost"
            for row in kept
            if row.value not in read
        ]
        return broken
