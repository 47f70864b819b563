"""Snapshots of the producer table: `.snapshot` files beside the segments, in Kafka's layout.

A snapshot named N is the producer table as it was when the log ended at N. Kafka writes a row per
producer, with its last batch; Penstock writes a row for each of its last batches, oldest first. A
reader that keeps the last row per producer sees what Kafka would have written.
"""

import os
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Final

from crc32c import crc32c

from penstock.errors import Malformed
from penstock.log.files import replace_file
from penstock.log.producer_state import BatchMark, ProducerState, ProducerTable
from penstock.log.segment import base_offset_of
from penstock.model import (
    NO_OFFSET,
    NO_SEQUENCE,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    SequenceNumber,
)
from penstock.protocol.varint import Buffer

_HEAD: Final = Struct(
    ">"
    "h"  # version  1
    "I"  # crc      CRC-32C of everything after this field
)
_COUNT: Final = Struct(">i")
_ROW: Final = Struct(
    ">"
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # last_sequence
    "q"  # last_offset
    "i"  # offset_delta
    "q"  # timestamp
    "i"  # coordinator_epoch
    "q"  # current_txn_first_offset
)
assert _ROW.size == 46
_VERSION: Final = 1
_SUFFIX: Final = ".snapshot"
_NO_BATCH: Final = BatchMark(NO_SEQUENCE, NO_OFFSET, 0)


def write_snapshot(table: ProducerTable) -> bytes:
    rows = [
        _ROW.pack(
            producer.producer_id,
            producer.producer_epoch,
            mark.last_sequence,
            mark.last_offset,
            mark.offset_delta,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.transaction_start,
        )
        for producer in table.producers.values()
        for mark in (producer.batches or (_NO_BATCH,))
    ]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def read_snapshot(content: Buffer) -> list[ProducerState]:
    try:
        version, checksum = _HEAD.unpack_from(content)
        (count,) = _COUNT.unpack_from(content, _HEAD.size)
    except StructError:
        raise Malformed("a producer snapshot is incomplete", 0) from None
    if version != _VERSION:
        raise Malformed(f"producer snapshot version {version} is unknown", 0)
    if crc32c(memoryview(content)[_HEAD.size :]) != checksum:
        raise Malformed("a producer snapshot's checksum does not match", 2)
    rows_from = _HEAD.size + _COUNT.size
    if len(content) - rows_from != count * _ROW.size:
        raise Malformed(f"a producer snapshot does not have its {count} rows", rows_from)
    producers: dict[int, ProducerState] = {}
    for row in _ROW.iter_unpack(memoryview(content)[rows_from:]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, start = row
        earlier = producers.get(producer_id)
        batches = earlier.batches if earlier is not None else ()
        if last_offset >= 0:
            mark = BatchMark(SequenceNumber(last_sequence), Offset(last_offset), delta)
            batches = (*batches, mark)
        producers[producer_id] = ProducerState(
            ProducerId(producer_id),
            ProducerEpoch(epoch),
            batches,
            coordinator,
            Millis(timestamp),
            Offset(start),
        )
    return list(producers.values())


def snapshot_path(folder: str, offset: Offset) -> str:
    return f"{folder}/{offset:020d}{_SUFFIX}"


def save_snapshot(folder: str, offset: Offset, table: ProducerTable) -> None:
    replace_file(snapshot_path(folder, offset), write_snapshot(table))


def load_snapshot(folder: str, offset: Offset) -> list[ProducerState] | None:
    """None when it is missing or damaged; a damaged one is removed."""
    path = snapshot_path(folder, offset)
    try:
        with open(path, "rb") as file:
            return read_snapshot(file.read())
    except FileNotFoundError:
        return None
    except Malformed:
        os.unlink(path)
        return None


def snapshot_offsets(names: Iterable[str]) -> list[Offset]:
    """The snapshots among the names of a folder, oldest first."""
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(offset for stem in stems if (offset := base_offset_of(stem)) is not None)
