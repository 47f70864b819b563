"""Opening a partition's folder after a clean stop or a crash.

After a clean stop all files are relied on and almost nothing is read. Otherwise the segments from
the recovery point on are scanned: the log ends before the first batch that is incomplete, corrupt
or out of order, and indexes, producer table and epochs are made from what remains. A killed process
loses no batch whose append returned: it was in the page cache.

A crash damages only what was not on disk yet. Older bytes that are corrupt stay as they are: reads
of them are refused, and everything around them is kept. Only the end of the log must be valid,
because more is written after it: where it cannot be determined, the partition is not opened.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.log.append_plan import stage
from penstock.log.checkpoints import restore_advice
from penstock.log.files import LogFile, OpenFiles, remove_files
from penstock.log.indexes import DAMAGED, MISSING, OFFSET_ENTRY, TIME_ENTRY
from penstock.log.leader_epochs import FILE_NAME as EPOCHS_FILE
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.producer_snapshots import (
    load_snapshot,
    save_snapshot,
    snapshot_offsets,
    snapshot_path,
)
from penstock.log.producer_state import ProducerTable, Staged
from penstock.log.scan import (
    DamagedLogError,
    ScannedBatch,
    scan_batches,
    scan_headers,
    warn_of_damage,
)
from penstock.log.segment import Segment, base_offset_of
from penstock.log.segment_end import SUFFIX as END_SUFFIX
from penstock.log.segment_policy import RELATIVE_OFFSET_MAX
from penstock.log.segment_swap import complete_swaps
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.batch import BatchHeader, check_stored_batch

logger: Final = logging.getLogger(__name__)

_BESIDE_A_LOG = (".index", ".timeindex", ".txnindex", END_SUFFIX)


class RecoveredBytes(NamedTuple):
    """What was checked after an unclean stop, and cut off because it was not complete."""

    checked: int = 0
    cut: int = 0


class LoadedLog(NamedTuple):
    """A partition as it is on disk; at least one segment."""

    segments: list[Segment]
    end_offset: Offset
    producers: ProducerTable
    snapshot_offset: Offset  # how far the producers are in snapshots
    epochs: LeaderEpochs
    recovered: RecoveredBytes = RecoveredBytes()


def load_partition(
    folder: str,
    files: OpenFiles,
    *,
    index_interval_bytes: int,
    now: Millis,
    clean: bool,
    recovery_point: Offset,
    start_offset: Offset,
    is_start_known: bool,
) -> LoadedLog:
    sizes = complete_swaps(folder, files)
    segments = _find_segments(folder, files, sizes, created_at=now)
    if is_start_known:
        _check_start(folder, segments, start_offset)
    epochs = LeaderEpochs.load(folder) if EPOCHS_FILE in sizes else None
    if not segments:
        _check_end(folder, start_offset, recovery_point)
        remove_files(f"{folder}/{name}" for name in sizes if name.endswith(".snapshot"))
        segments = [Segment(folder, start_offset, files, created_at=now)]
        epochs = epochs or LeaderEpochs(folder)
        return LoadedLog(segments, start_offset, ProducerTable(), start_offset, epochs)
    suspects = _suspects(segments, recovery_point) if not clean else []
    repair = _Repair(index_interval_bytes, recovery_point, suspects)
    segments = repair.run(segments)
    end_offset, rebuilt = repair.end_of(segments[-1]), repair.rebuilt
    _check_end(folder, end_offset, recovery_point)
    producers = ProducerTable()
    replay_from = rebuilt[0].base_offset if rebuilt else end_offset
    snapshots = snapshot_offsets(sizes)
    known_from = _load_producers(folder, producers, snapshots, replay_from, segments[0].base_offset)
    _replay(segments, producers, known_from, snapshots, rebuild=rebuilt)
    if epochs is None or not epochs.entries:  # missing or damaged: read all batches
        epochs = _correct_epochs(LeaderEpochs(folder), segments, end_offset)
    elif suspects:
        epochs = _correct_epochs(epochs, rebuilt, end_offset)
    epochs.cut_start(max(start_offset, segments[0].base_offset))
    _drop_snapshots(folder, snapshots, segments, end_offset)
    return LoadedLog(segments, end_offset, producers, known_from, epochs, repair.recovered)


def _check_start(folder: str, segments: list[Segment], first_base_max: Offset) -> None:
    """DamagedLogError when the log does not start where it did."""
    if segments and (first := segments[0].base_offset) > first_base_max:
        reason = f"starts at offset {first} instead of {first_base_max}: {restore_advice(folder)}"
        raise DamagedLogError(reason, folder)


def _check_end(folder: str, end_offset: Offset, recovery_point: Offset) -> None:
    """DamagedLogError when the log ends before its recovery point: offsets would be reused."""
    if end_offset < recovery_point:
        advice = restore_advice(folder)
        reason = f"ends at offset {end_offset}, but was on disk up to {recovery_point}: {advice}"
        raise DamagedLogError(reason, folder)


def _find_segments(
    folder: str, files: OpenFiles, sizes: dict[str, int], *, created_at: Millis
) -> list[Segment]:
    logs = [name[:-4] for name in sizes if name.endswith(".log")]
    stems = sorted(stem for stem in logs if base_offset_of(stem) is not None)
    known = set(stems)
    for stem in logs:
        if stem.isdigit() and stem not in known:
            warn_of_damage(f"{folder}/{stem}.log", "not the name of a segment; ignored")
    remove_files(
        f"{folder}/{name}"
        for name in sizes
        if name.endswith(_BESIDE_A_LOG) and name.partition(".")[0] not in known
    )
    return [
        Segment(
            folder,
            Offset(int(stem)),
            files,
            size_bytes=sizes[stem + ".log"],
            offset_entries=_count(sizes.get(stem + ".index"), OFFSET_ENTRY.size),
            time_entries=_count(sizes.get(stem + ".timeindex"), TIME_ENTRY.size),
            may_have_aborts=stem + ".txnindex" in sizes,
            created_at=created_at,
        )
        for stem in stems
    ]


def _count(size_bytes: int | None, entry_bytes: int) -> int:
    if size_bytes is None:
        return MISSING
    return DAMAGED if size_bytes % entry_bytes else size_bytes // entry_bytes


def _suspects(segments: list[Segment], recovery_point: Offset) -> list[Segment]:
    """Segments that may contain batches at or after the recovery point."""
    following = [segment.base_offset for segment in segments[1:]]
    return [
        segment
        for segment, next_base in zip(segments, [*following, None], strict=True)
        if next_base is None or next_base > recovery_point
    ]


class _Repair:
    """Rebuilds indexes that are not valid, and cuts off incomplete batches."""

    def __init__(
        self, interval_bytes: int, recovery_point: Offset, suspects: list[Segment]
    ) -> None:
        self.rebuilt: list[Segment] = []
        self.recovered = RecoveredBytes()
        self._interval_bytes = interval_bytes
        self._recovery_point = recovery_point  # everything before it was on disk
        self._suspects = suspects
        self._rebuilt_end = Offset(0)  # of the segment that was rebuilt last

    def run(self, segments: list[Segment]) -> list[Segment]:
        """The segments that remain."""
        last = segments[-1]
        for number, segment in enumerate(segments):
            if segment.size_bytes == 0:
                _clear_missing_indexes(segment)
            check_entries = bool(self._suspects) or segment is last
            if segment not in self._suspects and _has_valid_indexes(
                segment, check_entries=check_entries
            ):
                continue
            was_whole = self._rebuild(segment, segments[number + 1 :])
            if segment is not last:
                segment.write_indexes()
            if not was_whole:
                return segments[: number + 1]
        return segments

    def end_of(self, last: Segment) -> Offset:
        """Where the log ends; the last segment must be valid even after a clean stop."""
        if last not in self.rebuilt and last.size_bytes:
            try:
                return last.end_offset()
            except Malformed as malformed:
                warn_of_damage(last.log.path, str(malformed))
                self._rebuild(last, [])
        return self._rebuilt_end if last in self.rebuilt else last.base_offset

    def _rebuild(self, segment: Segment, following: list[Segment]) -> bool:
        """Rebuild the indexes from the batches; False when the log was cut."""
        is_last = not following
        self.rebuilt.append(segment)
        is_suspect = segment in self._suspects
        checked_from = self._recovery_point if is_suspect else None
        position, end_offset = _index_batches(segment, self._interval_bytes, checked_from)
        self._rebuilt_end = end_offset
        lost_bytes = segment.size_bytes - position
        if is_suspect:
            checked, cut = self.recovered
            self.recovered = RecoveredBytes(checked + segment.size_bytes, cut)
        if lost_bytes == 0 or not (is_suspect or is_last):
            return True
        if end_offset >= self._recovery_point:
            logger.warning("%s: cut %d bytes at %d", segment.log.path, lost_bytes, position)
            cut_bytes = lost_bytes + sum(each.size_bytes for each in following)
            self.recovered = RecoveredBytes(self.recovered.checked, cut_bytes)
            _discard(following)  # first: after a kill in between, the next start does both
            segment.log.cut(position)
            return False
        if is_last:
            advice = restore_advice(segment.folder)
            reason = f"is corrupt at byte {position}, which was on disk: {advice}"
            raise DamagedLogError(reason, segment.log.path)
        return True


def _clear_missing_indexes(segment: Segment) -> None:
    """A segment without batches has no entries: MISSING and DAMAGED are no counts."""
    for index in (segment.offset_index, segment.time_index):
        if index.file.count < 0:
            index.start_over()


def _has_valid_indexes(segment: Segment, *, check_entries: bool) -> bool:
    if segment.size_bytes == 0:
        return segment.offset_index.file.count == segment.time_index.file.count == 0
    if segment.offset_index.file.count < 0 or segment.time_index.file.count <= 0:
        return False
    if not check_entries:
        return True
    last_time = segment.time_index.last_entry()
    if last_time is None or last_time.offset < segment.base_offset:
        return False
    entry = segment.offset_index.last_entry()
    if entry is None:
        return True
    last_offset, position = entry
    try:
        scanned = next(scan_headers(segment.log, position), None) if position >= 0 else None
    except Malformed:
        return False
    return scanned is not None and scanned.header.last_offset == last_offset


def _index_batches(
    segment: Segment, interval_bytes: int, checked_from: Offset | None
) -> tuple[int, Offset]:
    """Index the batches up to the first that is not valid; returns its position.

    The checksums of those that end after `checked_from` are checked.
    """
    segment.start_over()
    position, end_offset = 0, segment.base_offset
    scan = scan_headers if checked_from is None else scan_batches
    try:
        for scanned in scan(segment.log):
            header = scanned.header
            _check_offsets(header, segment.base_offset, end_offset)
            if checked_from is not None and header.end_offset > checked_from:
                check_stored_batch(scanned.view, scanned.at, header=header)
            base_offset = Offset(header.base_offset)
            segment.note_batch(scanned.position, header, base_offset, interval_bytes)
            position, end_offset = scanned.position + header.size_bytes, header.end_offset
    except Malformed as malformed:
        warn_of_damage(segment.log.path, str(malformed))
    return position, end_offset


def _check_offsets(header: BatchHeader, segment_base: Offset, end_offset: Offset) -> None:
    """A batch's checksum does not cover its offset."""
    if header.base_offset < end_offset or header.last_offset < header.base_offset:
        raise Malformed(f"offset {header.base_offset} after {end_offset}", 0)
    if header.last_offset - segment_base > RELATIVE_OFFSET_MAX:
        raise Malformed(f"offset {header.last_offset} is too far from {segment_base}", 0)


def _discard(segments: list[Segment]) -> None:
    """Remove the segments after a cut, the last one first, so that a kill leaves no gap."""
    for segment in reversed(segments):
        logger.warning("%s: removed, because the log was cut before it", segment.log.path)
        segment.close()
        remove_files(segment.paths())


def _load_producers(
    folder: str,
    table: ProducerTable,
    snapshots: list[Offset],
    upto: Offset,
    first_base_offset: Offset,
) -> Offset:
    """From the newest valid snapshot not after `upto`; returns its offset."""
    for offset in sorted((o for o in snapshots if o <= upto), reverse=True):
        producers = load_snapshot(folder, offset)
        if producers is not None:
            table.load(producers)
            return offset
        snapshots.remove(offset)
    return first_base_offset


def _replay(
    segments: list[Segment],
    table: ProducerTable,
    known_from: Offset,
    snapshots: list[Offset],
    *,
    rebuild: list[Segment],
) -> None:
    """Replay the batches from `known_from` on into the producer table and transaction indexes.

    Each segment gets a snapshot: when the segments before it are deleted, nothing else has the
    producers of those.
    """
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if not is_last and segments[number + 1].base_offset <= known_from:
            continue
        is_suspect = segment in rebuild
        if known_from < segment.base_offset and (
            is_suspect or segment.base_offset not in snapshots
        ):
            save_snapshot(segment.folder, segment.base_offset, table)
        with _until_corrupt(segment):
            for scanned in _headers_from(segment, known_from):
                if scanned.header.producer_id >= 0:
                    staged = stage_written(table, segment.log, scanned)
                    if is_suspect:
                        for aborted in table.aborted_by(staged):
                            segment.transaction_index.append(aborted)
                    table.commit(staged)


@contextmanager
def _until_corrupt(segment: Segment) -> Iterator[None]:
    """What follows corrupt bytes in an old segment is not known."""
    try:
        yield
    except Malformed as malformed:
        warn_of_damage(segment.log.path, str(malformed))


def _headers_from(segment: Segment, offset: Offset) -> Iterator[ScannedBatch]:
    position = 0 if offset <= segment.base_offset else segment.position_of(offset)
    return scan_headers(segment.log, position)


def stage_written(table: ProducerTable, log: LogFile, scanned: ScannedBatch) -> Staged:
    """The change that a batch in the log made to the table."""
    staged = Staged(table)
    header, position = scanned.header, scanned.position
    # Only markers are read; of other batches the header is enough.
    batch = log.read(position, position + header.size_bytes) if header.is_control else b""
    stage(staged, batch, 0, header, Offset(header.base_offset), "replica")
    return staged


def _correct_epochs(
    epochs: LeaderEpochs, segments: list[Segment], end_offset: Offset
) -> LeaderEpochs:
    """Make the epochs agree with the batches of these segments, and write them if they change."""
    for segment in segments:
        with _until_corrupt(segment):
            for _, header, _, _ in scan_headers(segment.log):
                epoch, base_offset = LeaderEpoch(header.leader_epoch), Offset(header.base_offset)
                if epochs.epoch_at(base_offset) != epoch:
                    epochs.cut_end(base_offset)
                    epochs.assign(epoch, base_offset)
    epochs.cut_end(end_offset)
    with suppress(OSError):  # a full disk: the next append writes them
        epochs.save()
    return epochs


def _drop_snapshots(
    folder: str, snapshots: list[Offset], segments: list[Segment], end_offset: Offset
) -> None:
    """Keep one per segment and the newest; those past the end are of removed batches."""
    valid = sorted(offset for offset in snapshots if offset <= end_offset)
    kept = {segment.base_offset for segment in segments} | set(valid[-1:])
    remove_files(snapshot_path(folder, offset) for offset in snapshots if offset not in kept)


def replay_producers(
    folder: str, segments: list[Segment], snapshots: list[Offset], end_offset: Offset
) -> tuple[ProducerTable, Offset]:
    """The table as it was when the log ended here, and how far of it is in snapshots.

    Starts from the newest of the snapshots, none of which is after the end.
    """
    table = ProducerTable()
    known_from = _load_producers(folder, table, snapshots, end_offset, segments[0].base_offset)
    _replay(segments, table, known_from, snapshots, rebuild=[])
    return table, known_from
