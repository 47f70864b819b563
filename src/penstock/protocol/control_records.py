"""Control records: the markers that end a producer's transaction in a partition.

A marker is a batch with one record, in the bytes that Apache Kafka writes.
"""

from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.model import NO_EPOCH, LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId
from penstock.protocol.batch import read_header
from penstock.protocol.records import Record, build_batch, read_records
from penstock.protocol.varint import Buffer

_KEY: Final = Struct(
    ">"
    "h"  # version  0
    "h"  # type     0 abort, 1 commit
)
_VALUE: Final = Struct(
    ">"
    "h"  # version            0
    "i"  # coordinator_epoch  fences a coordinator that was replaced
)
_ABORT: Final = 0
_COMMIT: Final = 1
_MARKER_BYTES_MAX: Final = 1024


class Marker(NamedTuple):
    """The end of one producer's transaction, as the partition records it."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool
    coordinator_epoch: int


def build_marker(
    *,
    commit: bool,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    coordinator_epoch: int,
    timestamp: Millis,
    base_offset: Offset = Offset(0),
    leader_epoch: LeaderEpoch = NO_EPOCH,
) -> bytearray:
    record = Record(
        timestamp=timestamp,
        key=_KEY.pack(0, _COMMIT if commit else _ABORT),
        value=_VALUE.pack(0, coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def read_marker(buffer: Buffer, position: int = 0) -> Marker:
    """The marker in the control batch at `position`; Malformed if it is anything else."""
    header = read_header(buffer, position)
    if not (header.is_control and header.is_transactional):
        raise Malformed("the batch is not a transaction marker", position)
    records = read_records(buffer, position, max_bytes=_MARKER_BYTES_MAX)
    if len(records) != 1:
        raise Malformed(f"a transaction marker with {len(records)} records", position)
    key, value = records[0].key, records[0].value
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        raise Malformed("a transaction marker is truncated", position)
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        raise Malformed(f"control record type {kind} is not a transaction marker", position)
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return Marker(
        ProducerId(header.producer_id),
        ProducerEpoch(header.producer_epoch),
        kind == _COMMIT,
        coordinator_epoch,
    )
