"""Checks of batches before they are appended, and their effect on the producer table.

Reads headers and decides; changes nothing, so that a refusal or a failed write leaves no trace.
Bytes from a leader raise Malformed or Refused, never an assertion.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.log.producer_state import Origin, ProducerTable, Staged
from penstock.model import LeaderEpoch, Offset
from penstock.protocol.batch import BatchHeader, check_stored_batch, iterate_headers
from penstock.protocol.control_records import read_marker
from penstock.protocol.varint import Buffer

OFFSET_MAX: Final = (1 << 63) - 1


class Appended(NamedTuple):
    """The offsets of an appended batch; those of the first copy if it is a duplicate."""

    base_offset: Offset
    end_offset: Offset
    is_duplicate: bool
    log_start_offset: Offset


def read_replicated(batches: Buffer) -> list[BatchHeader]:
    """The headers of the whole batches that a leader sent; may run in any thread.

    A batch that is cut off at the end is left out. Malformed when a checksum or field is not valid.
    """
    headers: list[BatchHeader] = []
    for position, header in iterate_headers(batches):
        check_stored_batch(batches, position, header=header)
        if _is_marker(header):
            read_marker(batches, position)
        headers.append(header)
    return headers


def check_replicated(
    headers: Sequence[BatchHeader],
    *,
    end_offset: Offset,
    last_epoch: LeaderEpoch,
    leader_epoch: LeaderEpoch,
) -> None:
    """Malformed when the batches cannot follow a log with this end and last epoch.

    Refused when one is of a later epoch than that of the leader that this replica follows.
    """
    for header in headers:
        if not end_offset <= header.base_offset <= header.last_offset < OFFSET_MAX:
            raise Malformed(
                f"the leader sent offset {header.base_offset} after {end_offset - 1}", 0
            )
        if header.leader_epoch < last_epoch:
            reason = f"the leader sent a batch of epoch {header.leader_epoch} after {last_epoch}"
            raise Malformed(reason, 0)
        if header.leader_epoch > leader_epoch:
            raise Refused(
                ErrorCode.unknown_leader_epoch,
                f"the leader of epoch {leader_epoch} sent a batch of epoch {header.leader_epoch}",
            )
        end_offset, last_epoch = header.end_offset, LeaderEpoch(header.leader_epoch)


def stage_replicated(
    table: ProducerTable, batches: Buffer, headers: Sequence[BatchHeader]
) -> Staged | None:
    """What these neighbouring batches change; None: nothing."""
    staged: Staged | None = None
    position = 0
    for header in headers:
        if header.producer_id >= 0:
            if staged is None:
                staged = Staged(table)
            stage(staged, batches, position, header, Offset(header.base_offset), "replica")
        position += header.size_bytes
    return staged


def stage(
    staged: Staged,
    batches: Buffer,
    position: int,
    header: BatchHeader,
    base_offset: Offset,
    origin: Origin,
) -> None:
    """Add one batch of a producer, or the marker that ends its transaction."""
    if not header.is_control:
        staged.add_batch(header, base_offset, origin)
    elif _is_marker(header):
        staged.add_marker(header, base_offset, read_marker(batches, position), origin)


def _is_marker(header: BatchHeader) -> bool:
    """Compaction leaves control batches without records: their marker has had its effect."""
    return header.is_control and header.producer_id >= 0 and header.record_count > 0
