"""Samples the cluster every five seconds for all pages, while a page is open.

Of a large cluster less often: sampling takes a bounded share of a core.

A page that asks gets the last sample, or waits for the first one. When no page has asked for
`IDLE_S`, sampling stops: a console without open pages costs nothing. The work is done in one
thread with connections of its own, so that neither the event loop nor the gateway's requests wait.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from penstock.console.samples.cluster_survey import FAILURES, ClusterSurvey, survey
from penstock.console.samples.throughput import Throughput
from penstock.gateway.errors import unavailable
from penstock.link.blocking import BlockingCluster
from penstock.model import Millis

logger: Final = logging.getLogger(__name__)

SAMPLE_S: Final = 5.0
SHARE_MAX: Final = 0.05  # of a core, for sampling
IDLE_S: Final = 600.0
STARTS_EVERY: Final = 6  # samples: retention is not that quick
FIRST_S: Final = 10.0  # how long a page waits for the first sample


class Sampler:
    """From the first request of a page to `stop`."""

    def __init__(self, connect: Callable[[], BlockingCluster], clock: Callable[[], Millis]) -> None:
        self._connect = connect
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "console-samples")
        self._cluster: BlockingCluster | None = None  # only in the thread
        self._task: asyncio.Task[None] | None = None
        self._asked_s = 0.0
        self._cpu_s = 0.0  # of the last sample
        self._changed = asyncio.Event()
        self.throughput: Final = Throughput()
        self.latest: ClusterSurvey | None = None
        self.number: int = 0  # of the latest sample
        self.failure: str | None = None  # why there is no newer one

    async def sample(self) -> ClusterSurvey:
        """The latest sample; 503 if there has been none."""
        self.touch()
        if self.latest is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_S):
                    await self.next_sample()
        if self.latest is None:
            reason = "" if self.failure is None else f": {self.failure}"
            raise unavailable(f"the cluster could not be sampled{reason}")
        return self.latest

    def touch(self) -> None:
        """A page is open."""
        loop = asyncio.get_running_loop()
        self._asked_s = loop.time()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())

    async def next_sample(self) -> None:
        """Wait for the next one, or for the reason why there is none."""
        await self._changed.wait()

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """Work on a sample: off the event loop, one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.in_thread(self._close)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() - self._asked_s < IDLE_S:
            began_s = loop.time()
            try:
                self.latest = await self.in_thread(self._survey)
            except FAILURES as failure:
                logger.debug("the cluster was not sampled: %s", failure)
                self.failure = str(failure)
            else:
                self.number += 1
                self.failure = None
            self._changed.set()
            self._changed = asyncio.Event()
            next_s = began_s + max(SAMPLE_S, self._cpu_s / SHARE_MAX)
            await asyncio.sleep(max(1.0, next_s - loop.time()))

    # In the thread.

    def _survey(self) -> ClusterSurvey:
        if self._cluster is None:
            self._cluster = self._connect()
        is_due = self.latest is None or self.number % STARTS_EVERY == 0
        known = None if is_due or self.latest is None else self.latest.starts
        began_s = time.thread_time()
        taken = survey(self._cluster, self._clock, known)
        self._cpu_s = time.thread_time() - began_s
        if taken.ends is not None:
            ends: dict[str, int] = {}
            for (topic, _), end in taken.ends.items():
                ends[topic] = ends.get(topic, 0) + end
            sizes = None if taken.sizes is None else taken.sizes.by_broker.values()
            size_bytes = None if sizes is None else sum(each.log_bytes for each in sizes)
            self.throughput.add(taken.at, ends, size_bytes)
        return taken

    def _close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
