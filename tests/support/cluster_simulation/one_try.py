"""A producer of a simulated cluster that sends each record once, and so knows what was refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.errors import ErrorCode, Refused
from penstock.link.aio import AsyncCluster
from penstock.link.operation import FAILURES
from penstock.link.send_batches import send_batches
from penstock.model import Millis
from penstock.protocol.records import build_batch
from tests.support.cluster_simulation.clients import LINK, Client
from tests.support.history import Outcome, Produced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model import TopicPartition
    from tests.support.cluster_simulation.cluster import Cluster
    from tests.support.history import History

ONE_TRY: Final = replace(LINK, retry_timeout_ms=0, unknown_retry_ms=0)
LEADER, ALL_IN_SYNC = 1, -1
# With acks=all, "not the leader" may also mean that it was appended and then given up.
BEFORE_THE_APPEND: Final = {
    ALL_IN_SYNC: frozenset({ErrorCode.not_enough_replicas}),
    LEADER: frozenset({ErrorCode.not_leader_or_follower}),
}


class OneTryProducer(Client):
    """Writes single records without a producer id, with acks=all or acks=1, and never again.

    What acks=1 acknowledges may be lost with the leader: it counts as unknown.
    """

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        name: str,
        *,
        partitions: Sequence[TopicPartition],
        flushes: bool,
    ) -> None:
        super().__init__(cluster, history, name)
        self.partitions = list(partitions)
        self.refused = 0
        # Under a flush policy acks=1 waits as well.
        self._acks = (ALL_IN_SYNC,) if flushes else (ALL_IN_SYNC, LEADER)
        self._last_value = 0

    async def run(self) -> None:
        """Produce until it is to stop."""
        link, rng = AsyncCluster(self.cluster.bootstrap, ONE_TRY), self.world.rng
        while not self.is_stopping:
            await asyncio.sleep(rng.uniform(0.02, 0.2))
            await self._send(link, rng.choice(self.partitions), rng.choice(self._acks))
        await link.close()

    async def _send(self, link: AsyncCluster, partition: TopicPartition, acks: int) -> None:
        self._last_value += 1
        row = Produced(self.name, *partition, f"{self.name}-{self._last_value}")
        batch = build_batch([(None, row.value.encode())], timestamp=Millis(self.loop.wall_ms()))
        try:
            offsets = await link.run(send_batches({partition: [batch]}, acks=acks))
            if acks == ALL_IN_SYNC:
                row.outcome, row.offset = Outcome.ACKNOWLEDGED, offsets[partition][0]
        except FAILURES as failure:
            self.check_refusal(failure, "produce once")
            if isinstance(failure, Refused) and failure.code in BEFORE_THE_APPEND[acks]:
                row.outcome = Outcome.REFUSED
                self.refused += 1
        finally:
            self.history.add(row)
            self.note(f"{row.value} with acks={acks}: {row.outcome} at {row.offset}")
