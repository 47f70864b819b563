"""Where batches about to be appended will lie, and what they will do to the producer table.

Reads headers and decides; changes nothing, so that a refusal or a failed write leaves no trace.
"""

from typing import NamedTuple

from penstock.log.producers import BatchMark, Origin, ProducerTable, Staged
from penstock.model import NO_TIMESTAMP, LeaderEpoch, Millis, Offset
from penstock.protocol.batch import BatchHeader, read_header, stamp
from penstock.protocol.control import read_marker
from penstock.protocol.primitives import Buffer, WritableBuffer


class PlacedBatch(NamedTuple):
    """One batch: where in the buffer, and which offsets it takes."""

    at: int
    size_bytes: int
    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    max_timestamp: Millis


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
    at, offset, newest = 0, first, NO_TIMESTAMP
    while at < len(batches):
        header = read_header(batches, at)
        if header.producer_id >= 0:
            if origin == "client" and (repeated := table.duplicate_of(header)) is not None:
                return repeated
            if staged is None:
                staged = Staged(table)
            _stage(staged, batches, at, header, offset, origin)
        last_offset = Offset(offset + header.last_offset_delta)
        newest = max(newest, Millis(header.max_timestamp))
        placed.append(_placed(header, at, offset, last_offset))
        offset = Offset(last_offset + 1)
        at += header.size_bytes
    assert at == len(batches), "only whole batches are appended"
    return Placement(placed, offset, newest, staged)


def place_replicated(batches: Buffer, table: ProducerTable, end_offset: Offset) -> Placement:
    """The follower's placement: as the leader wrote it, gaps and all."""
    placed: list[PlacedBatch] = []
    staged: Staged | None = None
    at, newest = 0, NO_TIMESTAMP
    while at < len(batches):
        header = read_header(batches, at)
        base_offset = Offset(header.base_offset)
        assert base_offset >= end_offset, "batches from a leader are in order"
        if header.producer_id >= 0:
            if staged is None:
                staged = Staged(table)
            _stage(staged, batches, at, header, base_offset, "replica")
        newest = max(newest, Millis(header.max_timestamp))
        placed.append(_placed(header, at, base_offset, header.last_offset))
        end_offset = header.end_offset
        at += header.size_bytes
    assert at == len(batches), "only whole batches are appended"
    return Placement(placed, end_offset, newest, staged)


def stamp_all(batches: WritableBuffer, placement: Placement, leader_epoch: LeaderEpoch) -> None:
    for placed in placement.batches:
        stamp(batches, placed.at, placed.base_offset, leader_epoch)


def _placed(header: BatchHeader, at: int, base_offset: Offset, last_offset: Offset) -> PlacedBatch:
    return PlacedBatch(
        at,
        header.size_bytes,
        base_offset,
        last_offset,
        LeaderEpoch(header.leader_epoch),
        Millis(header.max_timestamp),
    )


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
