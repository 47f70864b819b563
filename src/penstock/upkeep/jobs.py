"""What the broker asks of the compaction worker, what it is told, and the bytes between them.

A message is four bytes of length and JSON. Only the two ends of one pipe ever speak it, both of the
same version, so it carries no version of its own.
"""

import json
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.log.transaction_index import AbortedEntry
from penstock.model import Millis, Offset, ProducerEpoch, ProducerId

LENGTH: Final = Struct(">I")
MESSAGE_BYTES_MAX: Final = 256 << 20  # a longer one is a bug at the other end


class LiveProducer(NamedTuple):
    """A producer whose state must survive: the batch with its last sequence, or its last marker."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_offset: Offset | None  # of its last batch; None: it has written markers only


@dataclass(frozen=True, slots=True)
class CleanJob:
    """One round over one partition. All of it is decided by the broker, the time included."""

    folder: str
    base_offsets: tuple[Offset, ...]  # of every closed segment from the start to `end_offset`
    first_dirty_offset: Offset
    end_offset: Offset  # nothing from here on is touched
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: Millis
    now: Millis
    map_bytes: int
    bytes_per_second: int | None  # None: as fast as it goes
    seed: tuple[int, int]
    aborted: tuple[AbortedEntry, ...] = ()
    producers: tuple[LiveProducer, ...] = ()


class CleanedSegment(NamedTuple):
    """One `.cleaned` segment, whole and synced, and the closed segments it stands for."""

    base_offset: Offset
    replaces: tuple[Offset, ...]
    size_bytes: int
    max_timestamp: Millis


class Cleaned(NamedTuple):
    """The round is written. Up to `end_offset` each key has one record left, or a grace period."""

    end_offset: Offset
    segments: tuple[CleanedSegment, ...]
    read_bytes: int
    kept_bytes: int


class CorruptLog(NamedTuple):
    """The partition's bytes are not what they should be; nothing was written."""

    reason: str


class JobFailed(NamedTuple):
    """The world is broken (a full disk, a file gone); trying again may help."""

    reason: str


def write_job(job: CleanJob) -> bytes:
    return _framed(asdict(job))


def read_job(message: bytes) -> CleanJob:
    fields = json.loads(message)
    fields["base_offsets"] = tuple(fields["base_offsets"])
    fields["seed"] = tuple(fields["seed"])
    fields["aborted"] = tuple(AbortedEntry(*row) for row in fields["aborted"])
    fields["producers"] = tuple(LiveProducer(*row) for row in fields["producers"])
    return CleanJob(**fields)


def write_answer(answer: Cleaned | CorruptLog | JobFailed) -> bytes:
    return _framed({"kind": type(answer).__name__, **answer._asdict()})


def read_answer(message: bytes) -> Cleaned | CorruptLog | JobFailed:
    fields = json.loads(message)
    match fields.pop("kind"):
        case "Cleaned":
            rows = fields.pop("segments")
            segments = tuple(CleanedSegment(base, tuple(old), *rest) for base, old, *rest in rows)
            return Cleaned(segments=segments, **fields)
        case "CorruptLog":
            return CorruptLog(**fields)
        case "JobFailed":
            return JobFailed(**fields)
        case kind:
            raise AssertionError(f"the worker answered {kind!r}")


def _framed(fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields).encode()
    assert len(body) <= MESSAGE_BYTES_MAX
    return LENGTH.pack(len(body)) + body
