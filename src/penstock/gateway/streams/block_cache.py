"""Rendered events of partitions, cached while streams read them, within a number of bytes.

A block is what one fetch returned, as JSON: every stream that reads there uses the same bytes. The
least recently used blocks are dropped; a stream that needs one has it fetched again. Pure.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.gateway.events import UnreadableRecord
from penstock.model import Offset, TopicPartition

_OBJECT_BYTES: Final = 200  # of one event: tuple, integers, heads of byte strings


class BlockEvent(NamedTuple):
    """One event as clients get it."""

    offset: Offset
    key: bytes | None  # as in the record, for streams of one key
    text: bytes  # a JSON object without line breaks
    unreadable: UnreadableRecord | None = None  # some members of groups get it quarantined instead


@dataclass(frozen=True, slots=True)
class Block:
    """The events of a partition from `start_offset` to before `end_offset`; gaps are normal."""

    partition: TopicPartition
    start_offset: Offset
    end_offset: Offset
    events: Sequence[BlockEvent]

    def index_of(self, offset: Offset) -> int:
        """Where the first event at or after an offset is."""
        return bisect_left(self.events, offset, key=_offset_of)

    @property
    def size_bytes(self) -> int:
        """The memory that it takes."""
        return _OBJECT_BYTES + sum(
            _OBJECT_BYTES
            + len(event.text) * (1 if event.unreadable is None else 2)
            + len(event.key or b"")
            for event in self.events
        )


class BlockCache:
    """Blocks by partition and offset, at most `bytes_max` of them."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max: Final = bytes_max
        self.size_bytes: int = 0
        self._blocks: OrderedDict[tuple[TopicPartition, Offset], tuple[Block, int]] = OrderedDict()
        self._starts: dict[TopicPartition, list[Offset]] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def find(self, partition: TopicPartition, offset: Offset) -> Block | None:
        """The block that contains an offset."""
        starts = self._starts.get(partition)
        if not starts:
            return None
        index = bisect_right(starts, offset) - 1
        if index < 0:
            return None
        key = (partition, starts[index])
        block, _ = self._blocks[key]
        if block.end_offset <= offset:
            return None
        self._blocks.move_to_end(key)
        return block

    def add(self, block: Block) -> None:
        """Keep a block; drops the least recently used ones if there are too many bytes."""
        assert block.start_offset < block.end_offset, "a block covers offsets"
        key = (block.partition, block.start_offset)
        if key in self._blocks:
            self._drop(key)
        size_bytes = block.size_bytes
        self._blocks[key] = block, size_bytes
        self.size_bytes += size_bytes
        insort(self._starts.setdefault(block.partition, []), block.start_offset)
        while self.size_bytes > self.bytes_max and len(self._blocks) > 1:
            self._drop(next(iter(self._blocks)))

    def drop(self, partition: TopicPartition) -> None:
        """Drop all blocks of a partition: no stream reads it, or its topic was created again."""
        for start_offset in list(self._starts.get(partition, ())):
            self._drop((partition, start_offset))

    def drop_before(self, partition: TopicPartition, log_start_offset: Offset) -> None:
        """Drop blocks with events that were deleted from the log."""
        for start_offset in list(self._starts.get(partition, ())):
            if start_offset >= log_start_offset:
                break
            self._drop((partition, start_offset))

    def _drop(self, key: tuple[TopicPartition, Offset]) -> None:
        _, size_bytes = self._blocks.pop(key)
        self.size_bytes -= size_bytes
        partition, start_offset = key
        starts = self._starts[partition]
        del starts[bisect_left(starts, start_offset)]
        if not starts:
            del self._starts[partition]


def _offset_of(event: BlockEvent) -> Offset:
    return event.offset
