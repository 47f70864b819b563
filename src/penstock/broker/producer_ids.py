"""Producer ids for this broker's clients, from blocks that the controller allocates.

No id is given twice in the life of a cluster: the rest of a block is lost with the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from penstock.broker.handler import result_of
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred
from penstock.model import ProducerId

if TYPE_CHECKING:
    from collections.abc import Callable

REFILL_BELOW: Final = 100  # requested ahead of need, so that no client waits for the controller


class ProducerIdSource(Protocol):
    """The controller, as far as producer ids go."""

    def allocate_producer_ids(self) -> object:
        """Reply with a range of ids that are never given out again, or with None."""


class ProducerIds:
    """A block of ids, refilled as it is used up."""

    def __init__(self, allocate: Callable[[], object]) -> None:
        self._allocate = allocate  # replies with a range of ids
        self._blocks: list[range] = []
        self._is_refilling = False

    async def prepare(self) -> None:
        """Wait for the first block; without a controller, later ones are tried again."""
        self._on_block(await result_of(self._allocate()))

    def take(self) -> ProducerId:
        """An id that was never used. Refused, to be tried again, without the controller."""
        if sum(len(block) for block in self._blocks) < REFILL_BELOW and not self._is_refilling:
            self._refill()
        if not self._blocks:
            raise Refused(
                ErrorCode.coordinator_load_in_progress,
                "the controller has not allocated producer ids yet; try again",
            )
        block = self._blocks[0]
        self._blocks[:1] = [block[1:]] if len(block) > 1 else []
        return ProducerId(block[0])

    def _refill(self) -> None:
        self._is_refilling = True
        reply = self._allocate()
        if isinstance(reply, Deferred):
            reply.listen(self._on_block)
        else:
            self._on_block(reply)

    def _on_block(self, reply: object) -> None:
        self._is_refilling = False
        if isinstance(reply, range):  # else refused: the next `take` tries again
            self._blocks.append(reply)
