"""The answer to DescribeTransactions, read by hand: a transaction that has not started has no
start time, and the generated reader has no way to say so.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.model import Millis, ProducerEpoch, ProducerId, TopicPartition
from penstock.protocol.framing import skip_tagged_fields
from penstock.protocol.varint import Buffer, read_unsigned_varint

_THROTTLE: Final = Struct(">i")
_CODE: Final = Struct(">h")
_STATE: Final = Struct(
    ">"
    "i"  # timeout_ms
    "q"  # started_at      -1: not open
    "q"  # producer_id
    "h"  # producer_epoch
)
_PARTITION: Final = Struct(">i")


class TransactionState(NamedTuple):
    """One transactional id, as its coordinator knows it."""

    error_code: int
    transactional_id: str
    state: str  # Empty, Ongoing, PrepareCommit, CompleteCommit, …
    timeout_ms: int
    started_at: Millis | None
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]


def read_states_answer(buffer: Buffer, position: int) -> tuple[list[TransactionState], int]:
    """Version 0, the only one; the body ends with the frame."""
    try:
        return _read(memoryview(buffer), position)
    except StructError as error:
        raise Malformed("a description of transactions is cut short", len(buffer)) from error


def _read(frame: memoryview, position: int) -> tuple[list[TransactionState], int]:
    count, position = _read_count(frame, position + _THROTTLE.size)
    states = []
    for _ in range(count):
        state, position = _read_state(frame, position)
        states.append(state)
    position = skip_tagged_fields(frame, position, len(frame))
    if position != len(frame):
        raise Malformed(f"{len(frame) - position} bytes are left", position)
    return states, position


def _read_state(frame: memoryview, position: int) -> tuple[TransactionState, int]:
    (code,) = _CODE.unpack_from(frame, position)
    transactional_id, position = _read_text(frame, position + _CODE.size)
    name, position = _read_text(frame, position)
    timeout_ms, started_at, producer_id, epoch = _STATE.unpack_from(frame, position)
    count, position = _read_count(frame, position + _STATE.size)
    partitions: list[TopicPartition] = []
    for _ in range(count):
        topic, position = _read_text(frame, position)
        indexes, position = _read_count(frame, position)
        for _ in range(indexes):
            (index,) = _PARTITION.unpack_from(frame, position)
            partitions.append(TopicPartition(topic, index))
            position += _PARTITION.size
        position = skip_tagged_fields(frame, position, len(frame))
    state = TransactionState(
        code,
        transactional_id,
        name,
        timeout_ms,
        Millis(started_at) if started_at >= 0 else None,
        ProducerId(producer_id),
        ProducerEpoch(epoch),
        tuple(partitions),
    )
    return state, skip_tagged_fields(frame, position, len(frame))


def _read_text(frame: memoryview, position: int) -> tuple[str, int]:
    size, position = read_unsigned_varint(frame, position, len(frame))
    end = position + size - 1
    if size == 0 or end > len(frame):
        raise Malformed(f"a text of {size - 1} bytes", position)
    try:
        return str(frame[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise Malformed("a text is not UTF-8", position) from error


def _read_count(frame: memoryview, position: int) -> tuple[int, int]:
    claimed, position = read_unsigned_varint(frame, position, len(frame))
    if not 1 <= claimed <= len(frame) - position + 1:
        raise Malformed(f"{claimed - 1} entries in {len(frame) - position} bytes", position)
    return claimed - 1, position
