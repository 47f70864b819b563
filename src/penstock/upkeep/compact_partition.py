"""One round of compaction over one partition's closed segments: map the dirty keys, then filter.

Reads segments and writes `.cleaned` files; touches nothing else, so it may be killed at any moment.
What it keeps of the range it cleans: the last record of each key; a tombstone or a marker until its
grace period is over; every offset where it was. A batch from which nothing was taken is copied byte
for byte. Malformed: the partition is damaged, and nothing is left behind.

The last offset of each key in the dirty part of a log, in bounded memory.

When it is full the round ends at the last offset it knows, and the next round goes on from there.
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
from penstock.upkeep.compaction_plan import SegmentSize, WalkedTransactions, group_segments
from penstock.upkeep.jobs import Cleaned, CleanedSegment, CleanJob
from penstock.upkeep.segment_chunks import Stretch, read_stretches

ENTRY_BYTES: Final = 24
_LOAD_MAX: Final = 0.75  # fuller than that, linear probing walks far
_SLOTS_MIN: Final = 4


class KeyMap:
    """Key hashes and their last offsets. Filled once, in offset order, then only asked."""

    def __init__(self, *, map_bytes: int, offset_count: int, seed: tuple[int, int]) -> None:
        # Never more slots than the dirty offsets need: a small table stays in the cache.
        slots = min(map_bytes // ENTRY_BYTES, int(offset_count / _LOAD_MAX) + 1)
        self.entries: Final = np.zeros((max(slots, _SLOTS_MIN), 3), dtype=np.uint64)
        self.seed: Final = np.array(seed, dtype=np.uint64)
        self.count: int = 0
        self.last_offset: Offset = NO_OFFSET  # all keys up to here are known
        self._count_max = int(len(self.entries) * _LOAD_MAX)

    def add(self, stretch: Stretch, *, skip: Bools, first_offset: Offset) -> bool:
        """Note the keys of these batches from `first_offset` on; False when the map is full."""
        reached, self.count, last_offset, rot = compaction_kernels.map_keys(
            stretch.packed,
            stretch.unpacked,
            stretch.table,
            skip,
            first_offset,
            self.entries,
            self.count,
            self._count_max,
            self.seed,
        )
        if rot:
            position = stretch.position + int(stretch.table[reached]["position"])
            raise Malformed(compaction_kernels.REASONS[rot], position)
        self.last_offset = max(self.last_offset, Offset(last_offset))
        return reached == len(stretch.table)


_NO_BASE_TIMESTAMP: Final = -1


def clean(job: CleanJob, pace: Callable[[int], None]) -> Cleaned:
    """Do the round. `pace` is told of each piece of bytes read, and may take its time."""
    remove_leftovers(job.folder)
    key_map = map_dirty_keys(job, pace)
    end_offset = Offset(key_map.last_offset + 1)
    segments = [one for one in _sizes(job) if one.base_offset < end_offset]
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
        kept_bytes=filtering.kept_bytes,
    )


def map_dirty_keys(job: CleanJob, pace: Callable[[int], None]) -> KeyMap:
    """The last offset of each key from the first dirty offset on, as far as the map holds them."""
    first_offset = job.first_dirty_offset
    key_map = KeyMap(
        map_bytes=job.map_bytes, offset_count=job.end_offset - first_offset, seed=job.seed
    )
    transactions = WalkedTransactions(job.aborted, first_offset)
    for segment in _sizes(job):
        if segment.end_offset <= first_offset:
            continue
        for stretch in _stretches(job, segment, first_offset):
            pace(len(stretch.packed))
            table = stretch.table
            within = stretch.slice(0, int(np.sum(table["base_offset"] < job.end_offset)))
            skip = _aborted_or_control(within, transactions)
            if not key_map.add(within, skip=skip, first_offset=first_offset):
                return key_map
        # Offsets at the end of a segment may be gone already: they are known to hold nothing.
        known_to = min(segment.end_offset, job.end_offset) - 1
        key_map.last_offset = max(key_map.last_offset, Offset(known_to))
    return key_map


def _aborted_or_control(stretch: Stretch, transactions: WalkedTransactions) -> Bools:
    table = stretch.table
    skip: Bools = table["attributes"] & CONTROL != 0
    for index in np.flatnonzero(table["attributes"] & TRANSACTIONAL).tolist():
        if skip[index]:
            _on_marker(stretch, index, transactions)
        else:
            skip[index] = _on_batch(stretch, index, transactions)
    return skip


def _on_batch(stretch: Stretch, index: int, transactions: WalkedTransactions) -> bool:
    batch = stretch.table[index]
    return transactions.on_batch(ProducerId(int(batch["producer_id"])), _last_offset(batch))


def _on_marker(
    stretch: Stretch, index: int, transactions: WalkedTransactions
) -> tuple[bool, AbortedEntry | None]:
    """Whether a marker's transaction left nothing, and the abort to keep in the index."""
    batch = stretch.table[index]
    if batch["record_count"] == 0:
        return True, None  # an earlier round took the marker and left the header
    marker = read_marker(stretch.packed.data, int(batch["position"]))
    if marker.commit:
        return transactions.on_commit(marker.producer_id, _last_offset(batch)), None
    return transactions.on_abort(marker.producer_id, _last_offset(batch))


class _Filtering:
    """The second walk: from the first segment to the end of the round, group after group."""

    def __init__(
        self,
        job: CleanJob,
        key_map: KeyMap,
        pace: Callable[[int], None],
        *,
        last_segment: SegmentSize | None,
    ) -> None:
        self.read_bytes = 0
        self.kept_bytes = 0
        self._job = job
        self._key_map = key_map
        self._pace = pace
        self._last_segment = last_segment
        start = job.base_offsets[0] if job.base_offsets else Offset(0)
        self._transactions = WalkedTransactions(job.aborted, start)
        self._last_offsets = np.array(
            [p.last_offset for p in job.producers if p.last_offset is not None], dtype=np.int64
        )
        self._marker_epochs = {
            p.producer_id: p.producer_epoch for p in job.producers if p.last_offset is None
        }

    def clean_group(self, group: Sequence[SegmentSize]) -> CleanedSegment | None:
        """One cleaned segment for the group; None when it is a single one that stays as it is."""
        job = self._job
        files = CleanedFiles(
            job.folder, group[0].base_offset, index_interval_bytes=job.index_interval_bytes
        )
        try:
            for segment in group:
                for stretch in _stretches(job, segment, Offset(0)):
                    self._pace(int(stretch.table["size"].sum()))
                    self._filter(stretch, segment, files)
                self.read_bytes += segment.size_bytes
            self.kept_bytes += files.size_bytes
            if len(group) == 1 and not files.is_changed:
                files.discard()
                return None
            newest = segment_path(job.folder, group[-1].base_offset, "log")
            replaces = tuple(segment.base_offset for segment in group)
            return files.finish(replaces, modified_ns=os.stat(newest).st_mtime_ns)
        except BaseException:
            files.discard()
            raise

    def _filter(self, stretch: Stretch, segment: SegmentSize, files: CleanedFiles) -> None:
        table = stretch.table
        verdicts = self._verdicts(stretch, segment, files)
        section_bytes = int((table["records_end"] - table["records_at"]).sum())
        record_count = int(table["record_count"].sum())
        target = np.empty(
            section_bytes + record_count * compaction_kernels.RECORD_GROWTH_MAX, dtype=np.uint8
        )
        outcomes = np.zeros(len(table), dtype=compaction_kernels.OUTCOME)
        reached, rot = compaction_kernels.filter_records(
            stretch.packed,
            stretch.unpacked,
            table,
            verdicts,
            self._key_map.entries,
            self._key_map.seed,
            self._key_map.last_offset,
            self._job.now,
            self._job.now + self._job.delete_retention_ms,
            np.empty(int(table["record_count"].max()), dtype=np.bool_),
            target,
            outcomes,
        )
        if rot:
            position = stretch.position + int(table[reached]["position"])
            raise Malformed(compaction_kernels.REASONS[rot], position)
        files.is_changed |= bool(np.any(outcomes["action"] != compaction_kernels.UNTOUCHED))
        files.write(list(_output(stretch, outcomes, target, files)))

    def _verdicts(self, stretch: Stretch, segment: SegmentSize, files: CleanedFiles) -> Bytes:
        """What is known of each batch without its records."""
        table = stretch.table
        verdicts = np.zeros(len(table), dtype=np.uint8)
        last_offsets = table["base_offset"] + table["last_offset_delta"]
        holds_sequence = (table["producer_id"] >= 0) & np.isin(last_offsets, self._last_offsets)
        verdicts[holds_sequence] |= compaction_kernels.KEEP_EMPTY
        is_control = table["attributes"] & CONTROL != 0
        verdicts[is_control] |= compaction_kernels.MARKER
        for index in np.flatnonzero(table["attributes"] & TRANSACTIONAL).tolist():
            if is_control[index]:
                verdicts[index] |= self._marker_verdict(stretch, index, files)
            elif _on_batch(stretch, index, self._transactions):
                verdicts[index] |= compaction_kernels.DISCARD
        end = stretch.position + int(table[-1]["position"]) + int(table[-1]["size"])
        if segment is self._last_segment and end == segment.size_bytes:
            verdicts[-1] |= (
                compaction_kernels.KEEP_EMPTY
            )  # so that the end of the range can still be read
        # A marker without its record would say nothing of its producer to whoever replays the log.
        stays_whole = is_control & (verdicts & compaction_kernels.KEEP_EMPTY != 0)
        verdicts[stays_whole] &= ~np.uint8(compaction_kernels.DISCARD)
        return verdicts

    def _marker_verdict(self, stretch: Stretch, index: int, files: CleanedFiles) -> int:
        batch = stretch.table[index]
        left_nothing, aborted = _on_marker(stretch, index, self._transactions)
        if aborted is not None:
            files.note_aborted(aborted)
        verdict = 0
        if (
            self._marker_epochs.get(ProducerId(int(batch["producer_id"])))
            == batch["producer_epoch"]
        ):
            verdict |= (
                compaction_kernels.KEEP_EMPTY
            )  # the only trace of the epoch that fences older ones
        if left_nothing:
            verdict |= compaction_kernels.EXPIRES
            horizon_passed = batch["base_timestamp"] <= self._job.now
            if batch["attributes"] & compaction_kernels.DELETE_HORIZON and horizon_passed:
                verdict |= compaction_kernels.DISCARD
        return verdict


def _output(
    stretch: Stretch, outcomes: compaction_kernels.Table, target: Bytes, files: CleanedFiles
) -> Iterator[memoryview]:
    """The bytes that stay, neighbours that were not touched in one piece."""
    packed = stretch.packed.data
    kept = np.flatnonzero(outcomes["action"])
    batches = stretch.table[kept][["position", "size", "base_offset", "last_offset_delta"]].tolist()
    ends = outcomes[kept][["action", "max_timestamp"]].tolist()
    run_start = run_end = 0
    for index, (position, size_bytes, base_offset, last_delta), (action, max_timestamp) in zip(
        kept.tolist(), batches, ends, strict=True
    ):
        if action != compaction_kernels.UNTOUCHED:
            yield packed[run_start:run_end]
            run_start = run_end = 0
            rebuilt = _rebuilt(stretch.table[index], outcomes[index], target)
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
    """The batch with fewer records, or with none, at the same offsets and sequences."""
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


def _stretches(job: CleanJob, segment: SegmentSize, first_offset: Offset) -> Iterator[Stretch]:
    path = segment_path(job.folder, segment.base_offset, "log")
    return read_stretches(path, segment.base_offset, first_offset=first_offset)


def _sizes(job: CleanJob) -> list[SegmentSize]:
    """What each segment of the job takes on disk. The last one may reach past the round's end."""
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
        return 0  # an index that was never needed
