"""Fetches that wait: until there is enough to read, until a timeout, or until a partition is gone.

A poll is notified of every advance of its partitions. What it does then is scheduled, never done in
the appender's stack: the produce that woke it is answered first, and several appends in one turn of
the loop give one response.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.machine import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.broker.partition import Partition
    from penstock.model import Offset

ResponseT = TypeVar("ResponseT")


class LongPoll(Generic[ResponseT]):
    """One waiting fetch over some partitions. Ends once, by whichever comes first."""

    __slots__ = (
        "_deadline",
        "_end_offsets",
        "_is_scheduled",
        "_loop",
        "_missing_bytes",
        "_read",
        "_stopped",
        "deferred",
    )

    def __init__(
        self,
        partitions: Sequence[Partition],
        *,
        committed_only: bool,
        missing_bytes: int,
        wait_s: float,
        read: Callable[[], ResponseT],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._missing_bytes = missing_bytes
        self._read = read
        self._is_scheduled = False
        self._stopped = False
        self.deferred: Deferred[ResponseT] = Deferred(self._stop)  # when the client disconnects
        # Under read_committed an append inside an open transaction does not count: only an
        # advance of the last stable offset does.
        self._end_offsets: dict[Partition, Offset | None] = {}
        for partition in partitions:
            self._end_offsets[partition] = (
                partition.log.last_stable_offset if committed_only else None
            )
            partition.polls[self] = None
        self._deadline = self._loop.call_later(wait_s, self._end)

    def on_readable(self, partition: Partition, size_bytes: int) -> None:
        """This many more bytes can be read from the partition."""
        stable_offset = self._end_offsets[partition]
        if stable_offset is not None:
            if partition.log.last_stable_offset <= stable_offset:
                return
            size_bytes = self._missing_bytes  # what was behind the transaction counts as well
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.on_unavailable()

    def on_unavailable(self) -> None:
        """Respond in the next turn of the loop with what there is then."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        if self._stopped:
            return
        self._stop()
        try:
            response = self._read()
        except Exception as error:  # noqa: BLE001 - handed on: the connection logs it and ends
            self.deferred.resolve(error)
        else:
            self.deferred.resolve(response)

    def _stop(self) -> None:
        self._stopped = True
        self._deadline.cancel()
        for partition in self._end_offsets:
            partition.polls.pop(self, None)
