"""Clients of a simulated cluster: the product's own client code over the virtual network.

Each runs on a host of its own and notes in the history what it did and what it knows of the
outcome. A client never hides a failure: a refusal that a correct client must not get is a finding.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.aio import AsyncCluster
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.group_member import GroupMember, MemberSettings
from penstock.link.offsets import (
    GroupOffset,
    Isolation,
    committed_offsets,
    end_offsets,
    offset_rows,
    start_offsets,
)
from penstock.link.operation import FAILURES, request_of
from penstock.link.routing import CoordinatorKind
from penstock.link.send_batches import send_batches
from penstock.link.settings import LinkSettings
from penstock.link.transactions import end_transaction, init_producer_id
from penstock.model import Millis, Offset, SequenceNumber, TopicPartition
from penstock.protocol.batch import CONTROL, iterate_headers
from penstock.protocol.messages.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from penstock.protocol.records import build_batch, iterate_records
from tests.support.cluster_simulation.event_loop import SimulatedLoop
from tests.support.history import Committed, Fetched, Outcome, Owned, Produced, Read, Transaction

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from penstock.link.group_member import GroupGeneration
    from penstock.link.transactions import TransactionHandle
    from tests.support.cluster_simulation.cluster import Cluster
    from tests.support.history import History

LINK: Final = LinkSettings(
    connect_timeout_ms=1_000,
    request_timeout_ms=3_000,
    retry_timeout_ms=8_000,
    unknown_retry_ms=8_000,  # a broker that just started may not know the topic yet
)
READ: Final = FetchSettings(isolation=Isolation.READ_COMMITTED, wait_ms=200, stall_ms=20_000)
# Refusals that a correct producer gets only from a broken cluster.
NEVER: Final = frozenset(
    {
        ErrorCode.unknown_server_error,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.corrupt_message,
        ErrorCode.invalid_record,
    }
)


class Client:
    """A host with one task, and a link to the cluster."""

    def __init__(self, cluster: Cluster, history: History, name: str) -> None:
        self.cluster = cluster
        self.history = history
        self.name = name
        self.world = cluster.world
        self.loop = SimulatedLoop(cluster.world, cluster.network, name)
        self.findings: list[str] = []
        self.is_stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin; a failure that the client does not handle fails the simulation."""
        self._task = self.loop.start(work)
        return self._task

    @property
    def is_done(self) -> bool:
        """Whether the task has ended."""
        return self._task is None or self._task.done()

    def link(self) -> AsyncCluster:
        """To be made on the client's loop."""
        return AsyncCluster(self.cluster.bootstrap, LINK)

    def note(self, line: str) -> None:
        """Make a line part of the trace."""
        self.world.note(f"{self.name} {line}")

    def check_refusal(self, failure: Exception, what: str) -> None:
        """Some refusals are bugs of the cluster."""
        is_bug = isinstance(failure, Malformed)
        if isinstance(failure, Refused):
            is_bug = failure.code in NEVER
        if is_bug:
            self.findings.append(f"{self.name}: {what}: {failure}")


class IdempotentProducer(Client):
    """Writes with acks=all; with a transactional id in transactions, else batch by batch."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        name: str,
        *,
        partitions: Sequence[TopicPartition],
        transactional_id: str | None = None,
        given_ids: list[tuple[int, int]],
    ) -> None:
        super().__init__(cluster, history, name)
        self.partitions = list(partitions)
        self.transactional_id = transactional_id
        self.acknowledged = 0
        self._given_ids = given_ids
        self._handle: TransactionHandle | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._last_value = 0
        self._last_transaction = 0

    async def run(self) -> None:
        """Produce until it is to stop."""
        link, rng = self.link(), self.world.rng
        while not self.is_stopping:
            await asyncio.sleep(rng.uniform(0.02, 0.3))
            try:
                if self._handle is None:
                    self._handle = await self._new_handle(link)
                await self.work(link)
            except FAILURES as failure:
                self.note(f"gave up: {type(failure).__name__}")
                self.check_refusal(failure, "produce")
                self._handle = None
        await link.close()

    async def work(self, link: AsyncCluster) -> None:
        """One step."""
        if self.transactional_id is None:
            await self.send(link, None)
        else:
            await self._transaction(link)

    async def _new_handle(self, link: AsyncCluster) -> TransactionHandle:
        handle = await link.run(init_producer_id(self.transactional_id, timeout_ms=10_000))
        self._given_ids.append((handle.producer_id, handle.producer_epoch))
        self._sequences.clear()
        return handle

    async def send(self, link: AsyncCluster, transaction: str | None) -> None:
        """Some batches, each of a few records; note what became of them."""
        rng, handle = self.world.rng, self._handle
        assert handle is not None
        count = rng.randint(1, min(3, len(self.partitions)))
        sent: dict[TopicPartition, list[Produced]] = {}
        batches: dict[TopicPartition, list[bytearray]] = {}
        for partition in rng.sample(self.partitions, count):
            rows = [self._record(partition, transaction) for _ in range(rng.randint(1, 4))]
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + len(rows)
            sent[partition] = rows
            batches[partition] = [
                build_batch(
                    [(None, row.value.encode()) for row in rows],
                    timestamp=Millis(self.loop.wall_ms()),
                    producer_id=handle.producer_id,
                    producer_epoch=handle.producer_epoch,
                    base_sequence=SequenceNumber(sequence),
                    transactional=transaction is not None,
                )
            ]
        offsets: Mapping[TopicPartition, list[Offset]] = {}
        try:
            offsets = await link.run(send_batches(batches, transactional_id=self.transactional_id))
        finally:
            for partition, rows in sent.items():
                self._note_outcome(rows, offsets.get(partition))

    def _record(self, partition: TopicPartition, transaction: str | None) -> Produced:
        self._last_value += 1
        value = f"{self.name}-{self._last_value}"
        return Produced(self.name, *partition, value, transaction=transaction)

    def _note_outcome(self, rows: Sequence[Produced], offsets: Sequence[Offset] | None) -> None:
        base = -1
        if offsets is not None:
            base = offsets[0]
            self.acknowledged += len(rows)
        for index, row in enumerate(rows):
            if offsets is not None:
                row.outcome = Outcome.ACKNOWLEDGED
                row.offset = base + index if base >= 0 else -1
            self.history.add(row)
        self.note(f"{rows[0].value}.. {rows[0].outcome} at {base}")

    async def _transaction(self, link: AsyncCluster) -> None:
        handle = self._handle
        assert handle is not None
        self._last_transaction += 1
        name = f"{self.name}/{self._last_transaction}"
        is_commit = self.world.rng.random() < 0.8
        row = Transaction(name, is_commit)
        try:
            for _ in range(self.world.rng.randint(1, 3)):
                await self.send(link, name)
            ended = await link.run(end_transaction(handle, commit=is_commit))
            row.outcome = Outcome.ACKNOWLEDGED
            if ended.producer_epoch != handle.producer_epoch:
                self._sequences.clear()
            self._handle = ended
        finally:
            self.history.add(row)


class Reader(Client):
    """Reads every partition from its start, as far as it is committed; again and again, or once."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        name: str,
        *,
        partitions: Sequence[TopicPartition],
        repeats: bool,
        start: Offset = Offset(0),
    ) -> None:
        super().__init__(cluster, history, name)
        self.partitions = list(partitions)
        self._repeats = repeats
        self._positions: dict[TopicPartition, Offset] = dict.fromkeys(partitions, start)

    async def run(self) -> None:
        """Read to the ends; failures are tried again."""
        link = self.link()
        missing = set(self.partitions)
        while missing and not self.is_stopping:
            for partition in self.partitions:
                if partition not in missing:
                    continue
                try:
                    await self._read(link, partition)
                except FAILURES as failure:
                    self.check_refusal(failure, f"read {partition}")
                    if isinstance(failure, Refused) and not failure.code.retriable:
                        self.findings.append(f"{self.name}: read {partition}: {failure}")
                        return
                else:
                    if not self._repeats:
                        missing.discard(partition)
            await asyncio.sleep(0.3)
        await link.close()

    async def run_from_start(self) -> None:
        """As `run`, from where the logs begin now."""
        link = self.link()
        while True:
            try:
                self._positions |= await link.run(start_offsets(self.partitions))
                break
            except FAILURES as failure:
                self.check_refusal(failure, "find the start")
        await link.close()
        await self.run()

    async def _read(self, link: AsyncCluster, partition: TopicPartition) -> None:
        isolation = READ.isolation
        ends = await link.run(end_offsets([partition], isolation=isolation))
        start = self._positions[partition]
        stream = link.stream(fetch_range(partition, start, ends[partition], settings=READ))
        async for chunk in stream:
            aborted = _AbortedRanges(chunk.aborted)
            for position, header in iterate_headers(chunk.records):
                if header.attributes & CONTROL:
                    aborted.on_marker(header.producer_id)
                    continue
                is_aborted = aborted.covers(header)
                for record in iterate_records(chunk.records, position):
                    if chunk.start_offset <= record.offset < chunk.end_offset and not is_aborted:
                        value = bytes(record.value or b"").decode()
                        self.history.add(Read(self.name, *partition, record.offset, value))
            self._positions[partition] = chunk.end_offset
        self.note(f"read {partition} to {self._positions[partition]}")


class _AbortedRanges:
    """Which producers' transactions are aborted at the current place of a chunk."""

    def __init__(self, aborted: Sequence[Any]) -> None:
        self._starts = sorted((row.first_offset, row.producer_id) for row in aborted)
        self._open: set[int] = set()

    def covers(self, header: Any) -> bool:
        """Whether a batch belongs to an aborted transaction."""
        while self._starts and self._starts[0][0] <= header.base_offset:
            self._open.add(self._starts.pop(0)[1])
        return header.producer_id in self._open

    def on_marker(self, producer_id: int) -> None:
        """The transaction ended here."""
        self._open.discard(producer_id)


class GroupConsumer(Client):
    """A member of a classic group: commits what it would have processed, forwards only."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        name: str,
        *,
        group: str,
        partitions: Sequence[TopicPartition],
    ) -> None:
        super().__init__(cluster, history, name)
        self.group = group
        self.partitions = list(partitions)
        self.commits = 0

    async def run(self) -> None:
        """Take part until it is to stop."""
        settings = MemberSettings(
            self.group, "consumer", "range", session_ms=6_000, heartbeat_ms=500, rebalance_ms=4_000
        )
        member = GroupMember(
            self.link(),
            settings,
            metadata=lambda: b"",
            assign=self._assign,
            on_joined=self._on_joined,
            on_lost=self._on_lost,
        )
        member.start()
        while not self.is_stopping:  # noqa: ASYNC110 - set from outside the loop
            await asyncio.sleep(0.1)
        await member.leave()

    def _assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        names = sorted(members)
        shares: dict[str, list[TopicPartition]] = {name: [] for name in names}
        for index, partition in enumerate(self.partitions):
            shares[names[index % len(names)]].append(partition)
        return {name: json.dumps(share).encode() for name, share in shares.items()}

    async def _on_lost(self, reason: str) -> None:
        self.note(f"left its generation: {reason[:60]}")

    async def _on_joined(self, generation: GroupGeneration) -> None:
        mine = [TopicPartition(*row) for row in json.loads(generation.assignment or b"[]")]
        self.note(f"generation {generation.generation}: {mine}")
        for partition in mine:
            self.history.add(Owned(self.group, generation.generation, self.name, *partition))
        link = self.link()
        try:
            await self._consume(link, generation, mine)
        finally:
            await link.close()

    async def _consume(
        self, link: AsyncCluster, generation: GroupGeneration, mine: list[TopicPartition]
    ) -> None:
        offsets: dict[TopicPartition, Offset] = {}
        while not self.is_stopping:
            try:
                if not offsets and mine:
                    offsets = await self._committed(link, generation, mine)
                await asyncio.sleep(self.world.rng.uniform(0.05, 0.3))
                for partition in mine:
                    offset = Offset(offsets[partition] + self.world.rng.randint(1, 5))
                    offsets[partition] = offset
                    await self._commit(link, generation, partition, offset)
            except FAILURES as failure:
                self.check_refusal(failure, "consume")
                await asyncio.sleep(0.2)

    async def _committed(
        self, link: AsyncCluster, generation: GroupGeneration, mine: list[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        # What was acknowledged before the request was sent must be in the response.
        place = len(self.history.operations)
        rows = await link.run(committed_offsets(self.group, mine))
        offsets = {}
        for partition in mine:
            offset = rows[partition].offset if partition in rows else Offset(-1)
            fetched = Fetched(self.group, generation.generation, self.name, *partition, offset)
            self.history.operations.insert(place, fetched)
            offsets[partition] = Offset(max(0, offset))
        return offsets

    async def _commit(
        self,
        link: AsyncCluster,
        generation: GroupGeneration,
        partition: TopicPartition,
        offset: Offset,
    ) -> None:
        rows = offset_rows({partition: GroupOffset(offset, "")})
        topics = [OffsetCommitTopic(*row) for row in rows.items()]
        body = OffsetCommitRequest(
            self.group, generation.generation, generation.member_id, topics=topics
        )
        request = request_of(OFFSET_COMMIT, body, version_min=2, version_max=9)
        row = Committed(self.group, generation.generation, self.name, *partition, offset)
        try:
            response = await link.run(
                lambda routes: routes.send_to_coordinator(
                    CoordinatorKind.GROUP, self.group, request
                )
            )
            code = response.topics[0].partitions[0].error_code
            if code is ErrorCode.none:
                row.outcome = Outcome.ACKNOWLEDGED
                self.commits += 1
            else:
                link.routes.invalidate_coordinator(CoordinatorKind.GROUP, self.group)
                raise Refused(code, f"commit of {partition}: {code.name}")
        finally:
            self.history.add(row)
            self.note(f"commit {partition} {offset}: {row.outcome}")
