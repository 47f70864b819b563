"""Asks the cluster every second whether it responds, and every few seconds for lag and targets."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.errors import Malformed, Refused
from penstock.link.aio import AsyncCluster
from penstock.link.offsets import Isolation, end_offsets
from penstock.link.settings import LinkSettings
from penstock.model import Millis, Offset, TopicPartition
from penstock.monitor.cluster_requests import member_metadata, metrics_urls, request_brokers
from penstock.monitor.group_lag import GroupLag
from penstock.monitor.targets import MetricsTargets

logger: Final = logging.getLogger(__name__)

PING_S: Final = 1.0
PING_TIMEOUT_S: Final = 4.0
SAMPLE_PINGS: Final = 5  # lag is computed with every fifth ping
ROUND_S: Final = 60.0
_FAILURES: Final = (OSError, Refused, Malformed, TimeoutError)


class ClusterWatch:
    """Watches from `start` to `stop`."""

    def __init__(
        self,
        bootstrap: str,
        settings: LinkSettings,
        *,
        clock: Callable[[], Millis],
        own_address: str,
        registry_group: str,
        schemas_topic: str,
    ) -> None:
        self._cluster = AsyncCluster(bootstrap, settings)
        self._registry_group = registry_group
        self._schemas = TopicPartition(schemas_topic, 0)
        self._task: asyncio.Task[None] | None = None
        self.lag: Final = GroupLag(self._cluster, clock)
        self.targets: Final = MetricsTargets(own_address)
        self.is_reachable: bool = False
        self.schemas_end: Offset | None = None  # of the registry's log

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._cluster.close()

    async def _watch(self) -> None:
        pings = 0
        while True:
            await self._ping()
            if self.is_reachable and pings % SAMPLE_PINGS == 0:
                await self._sample()
            pings += 1
            await asyncio.sleep(PING_S)

    async def _ping(self) -> None:
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await self._cluster.run(request_brokers())
        except _FAILURES as failure:
            if self.is_reachable:
                logger.warning("no broker responds: %s", failure)
            self.is_reachable = False
        else:
            if not self.is_reachable:
                logger.info("the cluster responds")
            self.is_reachable = True

    async def _sample(self) -> None:
        """Each part on its own: one that fails leaves the others."""
        for part in (self._find_targets, self._measure_schemas, self.lag.refresh):
            try:
                async with asyncio.timeout(ROUND_S):
                    await part()
            except _FAILURES as failure:
                logger.debug("not measured this time: %s", failure)

    async def _find_targets(self) -> None:
        self.targets.add_brokers(await self._cluster.run(metrics_urls()))
        members = await self._cluster.run(member_metadata(self._registry_group))
        self.targets.add_registry_nodes(members)

    async def _measure_schemas(self) -> None:
        ends = await self._cluster.run(
            end_offsets([self._schemas], isolation=Isolation.READ_COMMITTED)
        )
        self.schemas_end = ends[self._schemas]
