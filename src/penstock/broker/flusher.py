"""Flushing by policy: logs that must survive a power failure are synced in groups, in a thread.

One thread syncs; what is requested while it works is its next group, so that many writers share one
sync. A partition with `flush.messages` commits nothing before its policy has it on disk; one with
`flush.ms` is synced that long after a write. For all others the operating system writes, and only
their closed segments are synced, so that recovery after a crash stays short.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Final

from penstock.metrics.histogram import Histogram
from penstock.metrics.row import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.broker.partition import Partition
    from penstock.log.flush import FlushWork
    from penstock.model import Millis

logger: Final = logging.getLogger(__name__)

SWEEP_S: Final = 0.5
SWEEP_PARTITIONS_MAX: Final = 500  # in one turn of the loop: a fraction of a millisecond


class Flusher:
    """Syncs logs. Implements `partition.FlushPort`."""

    def __init__(self, partitions: Iterable[Partition], *, clock: Callable[[], Millis]) -> None:
        self._partitions = partitions
        self._clock = clock
        self._requested: dict[Partition, None] = {}
        self._timed: set[Partition] = set()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flush")
        self._working = False
        self._closed = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._rest: Iterator[Partition] = iter(())
        self._began_s = 0.0
        self.seconds: Histogram = Histogram(SECONDS)  # of groups of logs
        self.errors: int = 0

    def start(self) -> None:
        """Sync closed segments from now on; needs the running event loop."""
        self._sweep()

    def request(self, partition: Partition) -> None:
        """Sync what the partition has now, as soon as the thread is free."""
        if self._closed:
            return  # the logs are being closed, which syncs them
        self._requested[partition] = None
        if not self._working:
            self._work()

    def request_within(self, partition: Partition, wait_ms: Millis) -> None:
        """Sync after this long at the latest."""
        if partition not in self._timed:
            self._timed.add(partition)
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_time, partition)

    def close(self) -> None:
        """Wait for the running sync; closing the logs syncs the rest."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._requested.clear()
        self._thread.shutdown(wait=True)

    def _on_time(self, partition: Partition) -> None:
        self._timed.discard(partition)
        self.request(partition)

    def _work(self) -> None:
        requested, self._requested = self._requested, {}
        group = [(partition, partition.log.pending_flush()) for partition in requested]
        self._working = True
        self._began_s = perf_counter()
        done = asyncio.get_running_loop().run_in_executor(
            self._thread, _run, [work for _, work in group]
        )
        done.add_done_callback(lambda done: self._on_done(group, done))

    def _on_done(
        self, group: list[tuple[Partition, FlushWork]], done: asyncio.Future[list[OSError | None]]
    ) -> None:
        self._working = False
        self.seconds.observe(perf_counter() - self._began_s)
        for (partition, work), error in zip(group, done.result(), strict=True):
            if error is None:
                partition.on_flushed(work.end_offset, self._clock())
            else:
                self.errors += 1
                logger.error("%s could not be synced to disk: %s", partition.topic_partition, error)
                partition.on_flush_failed(error)
        if self._requested:
            self._work()

    def _sweep(self) -> None:
        now = self._clock()
        batch = list(islice(self._rest, SWEEP_PARTITIONS_MAX))
        if len(batch) < SWEEP_PARTITIONS_MAX:
            self._rest = iter(tuple(self._partitions))
        for partition in batch:
            if partition.log.flush_due(now):
                self.request(partition)
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)


def _run(group: list[FlushWork]) -> list[OSError | None]:
    """The error of each: a failure of one partition does not affect the others."""
    return [_outcome(work) for work in group]


def _outcome(work: FlushWork) -> OSError | None:
    try:
        work.run()
    except OSError as error:
        return error
    return None
