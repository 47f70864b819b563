"""What batches about to be appended will do to the producer table, and where replicated ones go.

Reads headers and decides; changes nothing, so that a refusal or a failed write leaves no trace.
"""

from typing import NamedTuple, TypeAlias

from penstock.errors import Malformed
from penstock.log.producer_state import Origin, ProducerTable, Staged
from penstock.model import Millis, Offset
from penstock.protocol.batch import BatchHeader, read_header
from penstock.protocol.control_records import read_marker
from penstock.protocol.varint import Buffer

PlacedBatch: TypeAlias = tuple[int, BatchHeader, Offset]  # position in the buffer; first offset


class Appended(NamedTuple):
    """The offsets of an appended batch; those of the first copy if it is a duplicate."""

    base_offset: Offset
    end_offset: Offset
    is_duplicate: bool
    log_start_offset: Offset


class Placement(NamedTuple):
    """The batches of one replicated append."""

    batches: list[PlacedBatch]
    end_offset: Offset
    newest: Millis  # the largest timestamp among them
    staged: Staged | None  # None when no batch has a producer id


def place_replicated(batches: Buffer, table: ProducerTable, end_offset: Offset) -> Placement:
    """Batches as the leader wrote them, gaps included. Malformed: they cannot follow this log."""
    placed: list[PlacedBatch] = []
    staged: Staged | None = None
    at, newest, end = 0, -1, len(batches)
    while at < end:
        header = read_header(batches, at)
        base_offset = Offset(header.base_offset)
        if base_offset < end_offset:
            raise Malformed(f"the leader sent offset {base_offset} after {end_offset - 1}", at)
        if header.producer_id >= 0:
            if staged is None:
                staged = Staged(table)
            stage(staged, batches, at, header, base_offset, "replica")
        placed.append((at, header, base_offset))
        newest = max(newest, header.max_timestamp)
        end_offset = header.end_offset
        at += header.size_bytes
    if at != end:
        raise Malformed("the leader sent a batch that is cut short", at)
    return Placement(placed, end_offset, Millis(newest), staged)


def stage(
    staged: Staged,
    batches: Buffer,
    at: int,
    header: BatchHeader,
    base_offset: Offset,
    origin: Origin,
) -> None:
    """Add one batch of a producer, or the marker that ends its transaction."""
    if header.is_control:
        staged.add_marker(header, base_offset, read_marker(batches, at), origin)
    else:
        staged.add_batch(header, base_offset, origin)
