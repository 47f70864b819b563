"""Producer ids for this broker's clients, taken from blocks that the controller gives out.

No id is given twice in the life of a cluster: what is left of a block is lost with the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.errors import ErrorCode, Refused
from penstock.model import ProducerId

BLOCK_COUNT: Final = 1000
REFILL_BELOW: Final = 100  # asked for ahead of need, so that nobody waits for the controller


class ProducerIds:
    """A block of ids, refilled as it is used up."""

    def __init__(self, allocate: Callable[[int], asyncio.Future[ProducerId]]) -> None:
        self._allocate = allocate  # answers with the first of so many ids
        self._blocks: list[range] = []
        self._refill: asyncio.Future[ProducerId] | None = None

    async def prepare(self) -> None:
        """Wait for the first ones."""
        self._ask_ahead()
        if self._refill is not None:
            await self._refill

    def _ask_ahead(self) -> None:
        if sum(len(block) for block in self._blocks) < REFILL_BELOW and self._refill is None:
            self._ask()

    def take(self) -> ProducerId:
        """An id nobody had before. Refused, to be tried again, while the controller is away."""
        self._ask_ahead()
        if not self._blocks:
            raise Refused(
                ErrorCode.coordinator_load_in_progress,
                "the controller has not given producer ids yet; try again",
            )
        block = self._blocks[0]
        self._blocks[:1] = [block[1:]] if len(block) > 1 else []
        return ProducerId(block[0])

    def _ask(self) -> None:
        self._refill = self._allocate(BLOCK_COUNT)
        if self._refill.done():
            self._on_block(self._refill)
        else:
            self._refill.add_done_callback(self._on_block)

    def _on_block(self, given: asyncio.Future[ProducerId]) -> None:
        self._refill = None
        if not given.cancelled() and given.exception() is None:
            first = given.result()
            self._blocks.append(range(first, first + BLOCK_COUNT))
