"""Fetches that wait: until enough can be read, until the timeout, or until a partition is gone.

A poll is notified of every advance of the partitions it watches. What it does then is scheduled,
never done in the appender's stack: the produce that woke it is answered first, and several appends
in one turn of the loop give one response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.broker.handler import Answered
from penstock.broker.partition import Partition
from penstock.machine import Deferred
from penstock.model import Offset


class LongPoll:
    """One waiting fetch over some partitions. Ends once, by whichever comes first."""

    __slots__ = (
        "_deadline",
        "_end_offsets",
        "_has_left",
        "_loop",
        "_missing_bytes",
        "_read",
        "_scheduled",
        "deferred",
    )

    def __init__(
        self,
        partitions: Sequence[Partition],
        *,
        committed_only: bool,
        missing_bytes: int,
        wait_s: float,
        read: Callable[[], Answered],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._missing_bytes = missing_bytes
        self._read = read
        self._scheduled = False
        self._has_left = False
        self.deferred: Deferred[Answered] = Deferred(self._leave)  # when the client goes away
        # Under read_committed an append inside an open transaction is no news: what counts is
        # that the last stable offset moved beyond where it stood.
        self._end_offsets: dict[Partition, Offset | None] = {}
        for partition in partitions:
            self._end_offsets[partition] = (
                partition.log.last_stable_offset if committed_only else None
            )
            partition.polls.add(self)
        self._deadline = self._loop.call_later(wait_s, self._end)

    def on_readable(self, partition: Partition, size_bytes: int) -> None:
        """So many bytes more may be read from the partition."""
        stable = self._end_offsets[partition]
        if stable is not None:
            if partition.log.last_stable_offset <= stable:
                return
            size_bytes = self._missing_bytes  # what lay behind the transaction counts as well
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.on_gone()

    def on_gone(self) -> None:
        """Answer at the next turn of the loop with what is there then."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        if self._has_left:
            return
        self._leave()
        try:
            response = self._read()
        except Exception as error:  # noqa: BLE001 - handed on: the connection logs it and ends
            self.deferred.resolve(error)
        else:
            self.deferred.resolve(response)

    def _leave(self) -> None:
        self._has_left = True
        self._deadline.cancel()
        for partition in self._end_offsets:
            partition.polls.discard(self)
