"""One round of compaction over one partition's closed segments: map the dirty keys, then filter.

Reads segments and writes `.cleaned` files, nothing else, so that it may be killed at any moment.
Retains the last record of each key, tombstones and markers until their retention has passed, and
the offsets of all records. A batch that loses no record is copied byte for byte. Malformed: the
partition is corrupt, and no file is left.

The map of keys has bounded memory: when it is full, the round ends at the last offset that it
covers, and the next round continues from there.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from penstock.columns import compaction_kernels
from penstock.columns.compiled import Bools, Bytes
from penstock.errors import Malformed
from penstock.log.transaction_index import AbortedEntry
from penstock.model import NO_OFFSET, Millis, Offset, ProducerId
from penstock.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    seal,
    write_header,
)
from penstock.protocol.compression import compress
from penstock.protocol.control_records import read_marker
from penstock.upkeep.cleaned_files import CleanedFiles, remove_leftovers, segment_path
from penstock.upkeep.compaction_plan import SegmentSize, TransactionScan, group_segments
from penstock.upkeep.jobs import Cleaned, CleanedSegment, CleanJob
from penstock.upkeep.segment_chunks import SegmentChunk, read_chunks

ENTRY_BYTES: Final = 24
_LOAD_MAX: Final = 0.75  # above it linear probing gets slow
_SLOTS_MIN: Final = 4


class KeyMap:
    """Key hashes and their last offsets. Filled once, in offset order, then only read."""

    def __init__(self, *, map_bytes: int, offset_count: int, seed: tuple[int, int]) -> None:
        # No more slots than the dirty offsets need: a small table stays in the CPU cache.
        slots = min(map_bytes // ENTRY_BYTES, int(offset_count / _LOAD_MAX) + 1)
        self.entries: Final = np.zeros((max(slots, _SLOTS_MIN), 3), dtype=np.uint64)
        self.seed: Final = np.array(seed, dtype=np.uint64)
        self.count: int = 0
        self.last_offset: Offset = NO_OFFSET  # all keys up to here are known
        self._count_max = int(len(self.entries) * _LOAD_MAX)

    def add(self, chunk: SegmentChunk, *, skip: Bools, first_offset: Offset) -> bool:
        """Add the keys of these batches from `first_offset` on; False when the map is full."""
        reached, self.count, last_offset, problem = compaction_kernels.map_keys(
            chunk.packed,
            chunk.unpacked,
            chunk.table,
            skip,
            first_offset,
            self.entries,
            self.count,
            self._count_max,
            self.seed,
        )
        if problem:
            position = chunk.position + int(chunk.table[reached]["position"])
            raise Malformed(compaction_kernels.REASONS[problem], position)
        self.last_offset = max(self.last_offset, Offset(last_offset))
        return reached == len(chunk.table)


_NO_BASE_TIMESTAMP: Final = -1


def clean(job: CleanJob, pace: Callable[[int], None]) -> Cleaned:
    """Run the round. `pace` is called with the number of bytes read, and may sleep."""
    remove_leftovers(job.folder)
    key_map = map_dirty_keys(job, pace)
    end_offset = Offset(key_map.last_offset + 1)
    segments = [size for size in _sizes(job) if size.base_offset < end_offset]
    groups = group_segments(
        segments, segment_bytes=job.segment_bytes, segment_index_bytes=job.segment_index_bytes
    )
    filtering = _Filtering(job, key_map, pace, last_segment=segments[-1] if segments else None)
    try:
        cleaned = [filtering.clean_group(group) for group in groups]
    except BaseException:
        remove_leftovers(job.folder)
        raise
    return Cleaned(
        end_offset,
        tuple(segment for segment in cleaned if segment is not None),
        read_bytes=filtering.read_bytes,
        retained_bytes=filtering.retained_bytes,
    )


def map_dirty_keys(job: CleanJob, pace: Callable[[int], None]) -> KeyMap:
    """The last offset of each key from the first dirty offset on, up to the map's limit."""
    first_offset = job.first_dirty_offset
    key_map = KeyMap(
        map_bytes=job.map_bytes, offset_count=job.end_offset - first_offset, seed=job.seed
    )
    transactions = TransactionScan(job.aborted, first_offset)
    for segment in _sizes(job):
        if segment.end_offset <= first_offset:
            continue
        for chunk in _chunks(job, segment, first_offset):
            pace(len(chunk.packed))
            table = chunk.table
            within = chunk.slice(0, int(np.sum(table["base_offset"] < job.end_offset)))
            skip = _aborted_or_control(within, transactions)
            if not key_map.add(within, skip=skip, first_offset=first_offset):
                return key_map
        # Records at the end of a segment may have been removed: there is nothing to map.
        known_to = min(segment.end_offset, job.end_offset) - 1
        key_map.last_offset = max(key_map.last_offset, Offset(known_to))
    return key_map


def _aborted_or_control(chunk: SegmentChunk, transactions: TransactionScan) -> Bools:
    table = chunk.table
    skip: Bools = table["attributes"] & CONTROL != 0
    for index in np.flatnonzero(table["attributes"] & TRANSACTIONAL).tolist():
        if skip[index]:
            _on_marker(chunk, index, transactions)
        else:
            skip[index] = _on_batch(chunk, index, transactions)
    return skip


def _on_batch(chunk: SegmentChunk, index: int, transactions: TransactionScan) -> bool:
    batch = chunk.table[index]
    return transactions.on_batch(ProducerId(int(batch["producer_id"])), _last_offset(batch))


def _on_marker(
    chunk: SegmentChunk, index: int, transactions: TransactionScan
) -> tuple[bool, AbortedEntry | None]:
    """Whether nothing of a marker's transaction is left, else the abort to retain in the index."""
    batch = chunk.table[index]
    if batch["record_count"] == 0:
        return True, None  # an earlier round removed the marker and left the header
    marker = read_marker(chunk.packed.data, int(batch["position"]))
    if marker.commit:
        return transactions.on_commit(marker.producer_id, _last_offset(batch)), None
    return transactions.on_abort(marker.producer_id, _last_offset(batch))


class _Filtering:
    """The second pass: from the first segment to the end of the round, group after group."""

    def __init__(
        self,
        job: CleanJob,
        key_map: KeyMap,
        pace: Callable[[int], None],
        *,
        last_segment: SegmentSize | None,
    ) -> None:
        self.read_bytes = 0
        self.retained_bytes = 0
        self._job = job
        self._key_map = key_map
        self._pace = pace
        self._last_segment = last_segment
        start = job.base_offsets[0] if job.base_offsets else Offset(0)
        self._transactions = TransactionScan(job.aborted, start)
        self._last_offsets = np.array(
            [p.last_offset for p in job.producers if p.last_offset is not None], dtype=np.int64
        )
        self._marker_epochs = {
            p.producer_id: p.producer_epoch for p in job.producers if p.last_offset is None
        }

    def clean_group(self, group: Sequence[SegmentSize]) -> CleanedSegment | None:
        """One cleaned segment for the group; None when it is a single one without a change."""
        job = self._job
        files = CleanedFiles(
            job.folder, group[0].base_offset, index_interval_bytes=job.index_interval_bytes
        )
        try:
            for segment in group:
                for chunk in _chunks(job, segment, Offset(0)):
                    self._pace(int(chunk.table["size"].sum()))
                    self._filter(chunk, segment, files)
                self.read_bytes += segment.size_bytes
            self.retained_bytes += files.size_bytes
            if len(group) == 1 and not files.is_changed:
                files.discard()
                return None
            newest = segment_path(job.folder, group[-1].base_offset, "log")
            replaces = tuple(segment.base_offset for segment in group)
            return files.finish(replaces, modified_ns=os.stat(newest).st_mtime_ns)
        except BaseException:
            files.discard()
            raise

    def _filter(self, chunk: SegmentChunk, segment: SegmentSize, files: CleanedFiles) -> None:
        table = chunk.table
        flags = self._flags(chunk, segment, files)
        section_bytes = int((table["records_end"] - table["records_at"]).sum())
        record_count = int(table["record_count"].sum())
        target = np.empty(
            section_bytes + record_count * compaction_kernels.RECORD_GROWTH_MAX, dtype=np.uint8
        )
        outcomes = np.zeros(len(table), dtype=compaction_kernels.OUTCOME)
        reached, problem = compaction_kernels.filter_records(
            chunk.packed,
            chunk.unpacked,
            table,
            flags,
            self._key_map.entries,
            self._key_map.seed,
            self._key_map.last_offset,
            self._job.now,
            self._job.now + self._job.delete_retention_ms,
            np.empty(int(table["record_count"].max()), dtype=np.bool_),
            target,
            outcomes,
        )
        if problem:
            position = chunk.position + int(table[reached]["position"])
            raise Malformed(compaction_kernels.REASONS[problem], position)
        files.is_changed |= bool(np.any(outcomes["action"] != compaction_kernels.UNTOUCHED))
        files.write(list(_output(chunk, outcomes, target, files)))

    def _flags(self, chunk: SegmentChunk, segment: SegmentSize, files: CleanedFiles) -> Bytes:
        """What is known of each batch without its records, for the kernel."""
        table = chunk.table
        flags = np.zeros(len(table), dtype=np.uint8)
        last_offsets = table["base_offset"] + table["last_offset_delta"]
        has_last_sequence = (table["producer_id"] >= 0) & np.isin(last_offsets, self._last_offsets)
        flags[has_last_sequence] |= compaction_kernels.KEEP_EMPTY
        is_control = table["attributes"] & CONTROL != 0
        flags[is_control] |= compaction_kernels.MARKER
        for index in np.flatnonzero(table["attributes"] & TRANSACTIONAL).tolist():
            if is_control[index]:
                flags[index] |= self._marker_flags(chunk, index, files)
            elif _on_batch(chunk, index, self._transactions):
                flags[index] |= compaction_kernels.DISCARD
        end = chunk.position + int(table[-1]["position"]) + int(table[-1]["size"])
        if segment is self._last_segment and end == segment.size_bytes:
            flags[-1] |= compaction_kernels.KEEP_EMPTY  # so that the end of the range is readable
        # A marker without its record has no information for a replay of the log.
        keeps_record = is_control & (flags & compaction_kernels.KEEP_EMPTY != 0)
        flags[keeps_record] &= ~np.uint8(compaction_kernels.DISCARD)
        return flags

    def _marker_flags(self, chunk: SegmentChunk, index: int, files: CleanedFiles) -> int:
        batch = chunk.table[index]
        is_empty, aborted = _on_marker(chunk, index, self._transactions)
        if aborted is not None:
            files.note_aborted(aborted)
        flags = 0
        if (
            self._marker_epochs.get(ProducerId(int(batch["producer_id"])))
            == batch["producer_epoch"]
        ):
            # The only record of the epoch that fences older ones.
            flags |= compaction_kernels.KEEP_EMPTY
        if is_empty:
            flags |= compaction_kernels.EXPIRES
            horizon_passed = batch["base_timestamp"] <= self._job.now
            if batch["attributes"] & compaction_kernels.DELETE_HORIZON and horizon_passed:
                flags |= compaction_kernels.DISCARD
        return flags


def _output(
    chunk: SegmentChunk, outcomes: compaction_kernels.Table, target: Bytes, files: CleanedFiles
) -> Iterator[memoryview]:
    """The bytes that remain; neighbouring batches without a change in one chunk."""
    packed = chunk.packed.data
    remaining = np.flatnonzero(outcomes["action"])
    batches = chunk.table[remaining][
        ["position", "size", "base_offset", "last_offset_delta"]
    ].tolist()
    ends = outcomes[remaining][["action", "max_timestamp"]].tolist()
    run_start = run_end = 0
    for index, (position, size_bytes, base_offset, last_delta), (action, max_timestamp) in zip(
        remaining.tolist(), batches, ends, strict=True
    ):
        if action != compaction_kernels.UNTOUCHED:
            yield packed[run_start:run_end]
            run_start = run_end = 0
            rebuilt = _rebuilt(chunk.table[index], outcomes[index], target)
            size_bytes = len(rebuilt)
            yield memoryview(rebuilt)
        elif position == run_end:
            run_end += size_bytes
        else:
            yield packed[run_start:run_end]
            run_start, run_end = position, position + size_bytes
        files.note_batch(size_bytes, Offset(base_offset + last_delta), Millis(max_timestamp))
    yield packed[run_start:run_end]


def _rebuilt(
    batch: compaction_kernels.Table, outcome: compaction_kernels.Table, target: Bytes
) -> bytearray:
    """The batch with fewer records, or none, with the same offsets and sequence numbers."""
    if outcome["action"] == compaction_kernels.EMPTIED:
        attributes = int(batch["attributes"]) & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
        base_timestamp = _NO_BASE_TIMESTAMP
        records: bytes | bytearray | memoryview = b""
    else:
        attributes = int(outcome["attributes"])
        base_timestamp = int(outcome["base_timestamp"])
        raw = target[outcome["records_at"] : outcome["records_end"]].data
        records = compress(attributes & CODEC_MASK, raw)
    header = BatchHeader(
        base_offset=int(batch["base_offset"]),
        length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(records),
        leader_epoch=int(batch["leader_epoch"]),
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=int(batch["last_offset_delta"]),
        base_timestamp=base_timestamp,
        max_timestamp=int(outcome["max_timestamp"]),
        producer_id=int(batch["producer_id"]),
        producer_epoch=int(batch["producer_epoch"]),
        base_sequence=int(batch["base_sequence"]),
        record_count=int(outcome["record_count"]),
    )
    rebuilt = bytearray(HEADER_BYTES)
    write_header(rebuilt, 0, header)
    rebuilt += records
    seal(rebuilt)
    return rebuilt


def _last_offset(batch: compaction_kernels.Table) -> Offset:
    return Offset(int(batch["base_offset"]) + int(batch["last_offset_delta"]))


def _chunks(job: CleanJob, segment: SegmentSize, first_offset: Offset) -> Iterator[SegmentChunk]:
    path = segment_path(job.folder, segment.base_offset, "log")
    return read_chunks(path, segment.base_offset, first_offset=first_offset)


def _sizes(job: CleanJob) -> list[SegmentSize]:
    """The sizes of the job's segments. The last one may extend past the end of the round."""
    ends = [*job.base_offsets[1:], max(job.end_offset, *job.base_offsets)]
    return [
        SegmentSize(
            base_offset,
            end_offset,
            os.path.getsize(segment_path(job.folder, base_offset, "log")),
            _size_or_zero(segment_path(job.folder, base_offset, "index")),
            _size_or_zero(segment_path(job.folder, base_offset, "timeindex")),
        )
        for base_offset, end_offset in zip(job.base_offsets, ends, strict=True)
    ]


def _size_or_zero(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0  # the segment has no such index
