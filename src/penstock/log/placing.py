"""Where batches about to be appended will lie, and what they will do to the producer table.

Reads headers and decides; changes nothing, so that a refusal or a failed write leaves no trace.
This runs for every append: numbers stay plain until they leave.
"""

from typing import NamedTuple, TypeAlias

from penstock.log.producers import BatchMark, Origin, ProducerTable, Staged
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.batch import LOG_OVERHEAD_BYTES, BatchHeader, read_header, stamp
from penstock.protocol.control import read_marker
from penstock.protocol.primitives import Buffer, WritableBuffer

PlacedBatch: TypeAlias = tuple[int, BatchHeader, Offset]  # where in the buffer; its first offset


class Appended(NamedTuple):
    """Where the batches of an append lie; a duplicate's place is the first one's."""

    base_offset: Offset
    end_offset: Offset
    duplicate: bool
    start_offset: Offset


class Placement(NamedTuple):
    """All batches of one append."""

    batches: list[PlacedBatch]
    end_offset: Offset
    newest: Millis  # the largest timestamp among them
    staged: Staged | None  # None when no batch has a producer id


def place_produced(
    batches: Buffer, table: ProducerTable, first: Offset, origin: Origin
) -> Placement | BatchMark:
    """The leader's placement: one after the other from `first`; a repeat gives the earlier batch.

    Refused when a producer may not write this.
    """
    placed: list[PlacedBatch] = []
    staged: Staged | None = None
    at, offset, newest, end = 0, first, -1, len(batches)
    while at < end:
        header = read_header(batches, at)
        if header.producer_id >= 0:
            if origin == "client" and (repeated := table.duplicate_of(header)) is not None:
                return repeated
            if staged is None:
                staged = Staged(table)
            _stage(staged, batches, at, header, offset, origin)
        placed.append((at, header, offset))
        if header.max_timestamp > newest:
            newest = header.max_timestamp
        offset = Offset(offset + header.last_offset_delta + 1)
        at += header.length + LOG_OVERHEAD_BYTES
    assert at == end, "only whole batches are appended"
    return Placement(placed, offset, Millis(newest), staged)


def stage_one(header: BatchHeader, table: ProducerTable, first: Offset) -> Staged | BatchMark:
    """What one batch of a client with a producer id will change; a repeat gives the earlier one."""
    repeated = table.duplicate_of(header)
    if repeated is not None:
        return repeated
    staged = Staged(table)
    staged.add_batch(header, first, "client")
    return staged


def place_replicated(batches: Buffer, table: ProducerTable, end_offset: Offset) -> Placement:
    """The follower's placement: as the leader wrote it, gaps and all."""
    placed: list[PlacedBatch] = []
    staged: Staged | None = None
    at, newest, end = 0, -1, len(batches)
    while at < end:
        header = read_header(batches, at)
        base_offset = Offset(header.base_offset)
        assert base_offset >= end_offset, "batches from a leader are in order"
        if header.producer_id >= 0:
            if staged is None:
                staged = Staged(table)
            _stage(staged, batches, at, header, base_offset, "replica")
        placed.append((at, header, base_offset))
        newest = max(newest, header.max_timestamp)
        end_offset = header.end_offset
        at += header.size_bytes
    assert at == end, "only whole batches are appended"
    return Placement(placed, end_offset, Millis(newest), staged)


def stamp_all(batches: WritableBuffer, placement: Placement, leader_epoch: LeaderEpoch) -> None:
    for at, _, base_offset in placement.batches:
        stamp(batches, at, base_offset, leader_epoch)


def _stage(
    staged: Staged,
    batches: Buffer,
    at: int,
    header: BatchHeader,
    base_offset: Offset,
    origin: Origin,
) -> None:
    if header.is_control:
        staged.add_marker(header, base_offset, read_marker(batches, at), origin)
    else:
        staged.add_batch(header, base_offset, origin)
