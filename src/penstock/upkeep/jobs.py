"""The jobs of the compaction worker, its results, and their encoding.

A message is four bytes of length and JSON. Broker and worker are of the same version, so that it
needs no version number.
"""

import json
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.log.transaction_index import AbortedEntry
from penstock.model import Millis, Offset, ProducerEpoch, ProducerId

LENGTH: Final = Struct(">I")
MESSAGE_BYTES_MAX: Final = 256 << 20  # a longer message is a bug of the sender


class LiveProducer(NamedTuple):
    """A producer whose last batch, or else last marker, must be retained."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_offset: Offset | None  # of its last batch; None: it has written markers only


@dataclass(frozen=True, slots=True)
class CleanJob:
    """One round over one partition. The broker decides everything, including the time."""

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
    bytes_per_second: int | None  # None: no limit
    seed: tuple[int, int]
    aborted: tuple[AbortedEntry, ...] = ()
    producers: tuple[LiveProducer, ...] = ()


class CleanedSegment(NamedTuple):
    """One `.cleaned` segment, complete and synced, and the segments that it replaces."""

    base_offset: Offset
    replaces: tuple[Offset, ...]
    size_bytes: int
    max_timestamp: Millis


class Cleaned(NamedTuple):
    """The round is written: up to `end_offset` the log is compacted."""

    end_offset: Offset
    segments: tuple[CleanedSegment, ...]
    read_bytes: int
    retained_bytes: int


class CorruptLog(NamedTuple):
    """The partition is corrupt; nothing was written."""

    reason: str


class JobFailed(NamedTuple):
    """The environment failed (a full disk, a missing file); a retry may succeed."""

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


def write_result(result: Cleaned | CorruptLog | JobFailed) -> bytes:
    return _framed({"kind": type(result).__name__, **result._asdict()})


def read_result(message: bytes) -> Cleaned | CorruptLog | JobFailed:
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
            raise AssertionError(f"unknown result of the worker: {kind!r}")


def _framed(fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields).encode()
    assert len(body) <= MESSAGE_BYTES_MAX
    return LENGTH.pack(len(body)) + body
