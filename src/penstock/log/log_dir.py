"""A log directory: all partitions of one broker on one disk, and their checkpoints.

One process at a time has it open, by a lock on a file. A marker tells the next start whether this
stop was clean. Checkpoints of all partitions are in a few files, so that a start is quick. Never
decides which partitions exist: the controller does.
"""

import fcntl
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from penstock.errors import Malformed
from penstock.log.checkpoints import (
    START_OFFSETS,
    CheckpointWork,
    OffsetCheckpoints,
    restore_advice,
)
from penstock.log.crash_recovery import CrashRecovery, Unchecked
from penstock.log.files import OpenFiles, create_file, make_folders
from penstock.log.log_dir_identity import (
    LogDirectoryIdentity,
    claim_topic_id,
    load_identity,
    save_identity,
)
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery import RecoveredBytes
from penstock.log.scan import DamagedLogError
from penstock.log.settings import LogSettings
from penstock.model import Millis, Offset, TopicId, TopicPartition

logger: Final = logging.getLogger(__name__)

LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

_PARTITION_NAME: Final = re.compile(r"(.+)-([0-9]+)")
_DELETED_ENDING: Final = "-delete"
_NAME_BYTES_MAX: Final = 255
_NAME_PREFIX_MAX: Final = _NAME_BYTES_MAX - len(f".{UUID(int=0).hex}{_DELETED_ENDING}")
_SINGLE_SYNCS_MAX: Final = 32  # for more, one sync of the whole disk is quicker


class LogDirectoryError(Exception):
    """The directory belongs to another broker or is in use; the message says what to do."""


class LogDirectory:
    """The open partitions of a log directory, by name."""

    def __init__(self, path: Path, files: OpenFiles, *, lock: int, was_clean: bool) -> None:
        self.path = path
        self.files = files
        self.was_clean = was_clean  # no partition needs recovery
        self.partitions: dict[TopicPartition, PartitionLog] = {}
        self._lock = lock
        self._checkpoints = OffsetCheckpoints(path)
        self._to_remove: list[tuple[Millis, Path]] = []
        self._undeleted: dict[TopicPartition, str] = {}  # the rename failed; by name, with tokens
        self._knows_starts = was_clean and (path / START_OFFSETS).exists()
        self._is_starting = True  # partitions that are opened now existed before
        self._checked: dict[TopicPartition, RecoveredBytes] = {}  # recovered before they are opened
        self._missing: dict[
            TopicPartition, TopicId | None
        ] = {}  # refused, because their folders are missing

    @classmethod
    def open(
        cls, path: Path, files: OpenFiles, *, identity: LogDirectoryIdentity | None = None
    ) -> "LogDirectory":
        """Lock the directory; LogDirectoryError when it belongs to another broker or is in use."""
        make_folders(path)
        lock = _take_lock(path)
        try:
            if identity is not None:
                _check_owner(path, identity)
        except BaseException:
            os.close(lock)
            raise
        marker = path / CLEAN_SHUTDOWN
        was_clean = marker.exists()
        marker.unlink(missing_ok=True)
        directory = cls(path, files, lock=lock, was_clean=was_clean)
        directory._remove_deleted_rows()
        directory.remove_deleted()
        return directory

    def plan_recovery(
        self, settings_of: Callable[[TopicPartition], LogSettings], now: Millis
    ) -> CrashRecovery:
        """After an unclean stop, check the logs that will be opened: `run` may be in a thread."""
        assert not self.was_clean
        offsets = self._checkpoints
        unchecked = [
            Unchecked(
                name,
                settings_of(name),
                offsets.recovery_points.get(name, Offset(0)),
                offsets.start_offsets.get(name, Offset(0)),
            )
            for name in self.partitions_on_disk()
            if name not in self.partitions
        ]
        recovery = CrashRecovery(self.path, unchecked, now)
        self._checked = recovery.checked
        return recovery

    def recovered(self) -> RecoveredBytes:
        """What the opening of all partitions has checked and cut, before `started`."""
        rows = [self._checked.get(name, log.recovered) for name, log in self.partitions.items()]
        return RecoveredBytes(sum(row.checked for row in rows), sum(row.cut for row in rows))

    def started(self) -> None:
        """All existing partitions were opened; one that is opened later is new."""
        self._is_starting = False
        self._checked = {}

    def partitions_on_disk(self) -> list[TopicPartition]:
        """Every partition on disk, open or not."""
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
        matches = (_PARTITION_NAME.fullmatch(name) for name in names)
        return [TopicPartition(match[1], int(match[2])) for match in matches if match is not None]

    def open_partition(
        self,
        topic_partition: TopicPartition,
        settings: LogSettings,
        *,
        topic_id: TopicId | None = None,
        now: Millis,
    ) -> PartitionLog:
        """Open the partition, or create it."""
        assert topic_partition not in self.partitions
        if topic_partition in self._undeleted:
            self._retire(topic_partition, self._undeleted[topic_partition], now)
        folder = self.path / str(topic_partition)
        is_new = _make_folder(folder)
        try:
            if is_new:
                self._check_is_new(topic_partition, topic_id)
                self._begin_new(topic_partition)
            if topic_id is not None:
                self._claim(folder, topic_partition, topic_id)
            log = self._open(folder, topic_partition, settings, is_new=is_new, now=now)
        except OSError:
            if is_new:  # a retry starts from nothing
                shutil.rmtree(folder, ignore_errors=True)
            raise
        log.set_high_watermark(
            self._checkpoints.high_watermarks.get(topic_partition, log.start_offset)
        )
        log.checkpoints = self
        self.partitions[topic_partition] = log
        return log

    def _open(
        self,
        folder: Path,
        topic_partition: TopicPartition,
        settings: LogSettings,
        *,
        is_new: bool,
        now: Millis,
    ) -> PartitionLog:
        recovery_point = self._checkpoints.recovery_points.get(topic_partition, Offset(0))
        return PartitionLog.open(
            folder,
            settings,
            self.files,
            now=now,
            clean=self.was_clean or is_new,
            recovery_point=recovery_point,
            start_offset=self._checkpoints.start_offsets.get(topic_partition, Offset(0)),
            is_start_known=self._knows_starts and recovery_point > 0,
            is_checked=topic_partition in self._checked,
        )

    def _check_is_new(self, topic_partition: TopicPartition, topic_id: TopicId | None) -> None:
        """DamagedLogError when a partition without a folder had records at the last stop.

        A topic that is created again with the same name has another id.
        """
        known = max(
            points.get(topic_partition, Offset(0))
            for points in (self._checkpoints.recovery_points, self._checkpoints.high_watermarks)
        )
        if self._is_starting and known:
            self._missing[topic_partition] = topic_id
        elif topic_partition not in self._missing or self._missing[topic_partition] != topic_id:
            return
        folder = str(self.path / str(topic_partition))
        reason = f"is missing, and had records up to offset {known}: {restore_advice(folder)}"
        raise DamagedLogError(reason, folder)

    def _claim(self, folder: Path, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        try:
            claim_topic_id(folder, topic_id)
        except FileExistsError:  # the checkpoints are of that folder, which may be moved away
            self._begin_new(topic_partition)
            raise

    def delete_partition(self, topic_partition: TopicPartition, *, token: str, now: Millis) -> None:
        """Rename the folder now, and remove it later; `token` makes the new name unique."""
        log = self.partitions.pop(topic_partition)
        log.abandon()
        self._retire(topic_partition, token, Millis(now + log.settings.file_delete_delay_ms))

    def discard(self, topic_partition: TopicPartition, *, token: str, now: Millis) -> None:
        """As `delete_partition`, for a partition that was never opened and has no readers."""
        assert topic_partition not in self.partitions
        self._retire(topic_partition, token, now)

    def set_aside(
        self, topic_partition: TopicPartition, token: str, *, reason: str = "stray"
    ) -> Path:
        """Rename a folder that belongs to no topic, or is damaged; returns the new path."""
        log = self.partitions.pop(topic_partition, None)
        if log is not None:
            log.abandon()
        source = self.path / str(topic_partition)
        aside = source.with_name(f"{source.name[:200]}.{token}-{reason}")
        self._missing.pop(topic_partition, None)
        self._checkpoints.remove(topic_partition)
        self._checkpoints.plan().run()  # first: these rows are not of the next folder of that name
        with suppress(FileNotFoundError):  # that is what is wrong with it
            source.rename(aside)
        return aside

    def _remove_deleted_rows(self) -> None:
        """Checkpoints may still have rows of partitions whose deletion a kill interrupted."""
        deleted = [entry.name for entry in self.path.glob(f"*.*{_DELETED_ENDING}")]
        names = {name.removesuffix(_DELETED_ENDING).rpartition(".")[0] for name in deleted}
        if not names:
            return
        checkpoints = self._checkpoints
        for topic_partition in tuple(checkpoints.recovery_points | checkpoints.high_watermarks):
            name = str(topic_partition)
            if names & {name, name[:_NAME_PREFIX_MAX]} and not (self.path / name).exists():
                checkpoints.remove(topic_partition)
        if checkpoints.has_deleted_rows:
            checkpoints.plan().run()

    def _begin_new(self, topic_partition: TopicPartition) -> None:
        """No checkpoint may have rows of an earlier partition of this name."""
        self._checkpoints.remove(topic_partition)
        if self._checkpoints.may_have_row(topic_partition):
            self._checkpoints.plan().run()

    def _retire(self, topic_partition: TopicPartition, token: str, remove_at: Millis) -> None:
        self._checkpoints.remove(topic_partition)
        target = self.path / _deleted_name(topic_partition, token)
        self._undeleted[topic_partition] = token
        with suppress(FileNotFoundError):  # an earlier attempt renamed it
            (self.path / str(topic_partition)).rename(target)
        del self._undeleted[topic_partition]
        self._to_remove.append((remove_at, target))

    def remove_deleted(self, now: Millis | None = None) -> int:
        """Remove deleted partitions whose delay has passed; all of them when `now` is None."""
        if now is None:
            due = [Path(entry) for entry in self.path.glob(f"*.*{_DELETED_ENDING}")]
        else:
            due = self.take_deleted(now)
        self.remove_folders(due)
        return len(due)

    def take_deleted(self, now: Millis) -> list[Path]:
        """The folders of deleted partitions whose delay has passed, for a thread to remove."""
        due = [path for at, path in self._to_remove if at <= now]
        self._to_remove = [row for row in self._to_remove if row[0] > now]
        return due

    @property
    def has_deleted_rows(self) -> bool:
        """Whether checkpoints on disk still have rows of deleted partitions."""
        return self._checkpoints.has_deleted_rows

    @staticmethod
    def remove_folders(folders: Iterable[Path], *, keep_names: bool = False) -> None:
        """Remove folders, or only their content; may run in any thread."""
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)
            if keep_names:  # they tell the next start what was deleted
                with suppress(OSError):
                    path.mkdir()

    def plan_checkpoint(self) -> CheckpointWork:
        """Take the offsets of all partitions; `run` of the result writes them."""
        self._note_offsets({name: log.recovery_point for name, log in self.partitions.items()})
        return self._checkpoints.plan()

    def _note_offsets(self, recovery_points: Mapping[TopicPartition, Offset]) -> None:
        # Partitions that were not opened this time keep their rows.
        self._checkpoints.recovery_points.update(recovery_points)
        for log in self.partitions.values():
            self._note_start(log)

    def _note_start(self, log: PartitionLog) -> None:
        self._checkpoints.start_offsets[log.topic_partition] = log.start_to_store
        self._checkpoints.high_watermarks[log.topic_partition] = log.high_watermark

    def plan_lower(self, log: PartitionLog) -> Callable[[], None]:
        """Store the offsets of a log before it is truncated. Implements `CheckpointPort`."""
        self._checkpoints.recovery_points[log.topic_partition] = log.recovery_point
        self._note_start(log)
        return self._checkpoints.plan().run

    def close(self) -> None:
        """Close every partition, and mark the stop as clean unless one failed."""
        logs = self.partitions
        is_clean = not self._undeleted and (
            self.was_clean or all(name in logs for name in self.partitions_on_disk())
        )
        dirty = sum(1 for log in logs.values() if log.unflushed_messages)
        sync_each = dirty <= _SINGLE_SYNCS_MAX
        closed = [tp for tp, log in logs.items() if _close_log(log, sync=sync_each)]
        if not sync_each:
            os.sync()
        self._note_offsets({name: logs[name].end_offset for name in closed})
        self._checkpoints.plan().run()
        is_clean = is_clean and len(closed) == len(logs)
        logs.clear()
        self.files.close_all()
        if is_clean:
            create_file(str(self.path / CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')
        self.release()

    def release(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _close_log(log: PartitionLog, *, sync: bool) -> bool:
    """Whether the log was closed cleanly."""
    try:
        log.close(sync=sync)
    except OSError as error:
        logger.error("%s will be recovered at the next start: %s", log.topic_partition, error)
        log.abandon()
        return False
    return True


def _make_folder(path: Path) -> bool:
    """Whether it was created. An existing folder never counts as new, readable or not."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def _take_lock(path: Path) -> int:
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LogDirectoryError(
            f"{path} is in use by another broker: stop that broker, or choose another folder"
        ) from None
    return descriptor


def _check_owner(path: Path, identity: LogDirectoryIdentity) -> None:
    try:
        owner = load_identity(path)
    except Malformed as malformed:
        raise LogDirectoryError(f"{path}: {malformed.reason}") from None
    if owner is None:
        save_identity(path, identity)
    elif (owner.cluster_id, owner.node_id) != (identity.cluster_id, identity.node_id):
        raise LogDirectoryError(
            f"{path} belongs to node {owner.node_id} of cluster {owner.cluster_id}, "
            f"not to node {identity.node_id} of cluster {identity.cluster_id}"
        )


def _deleted_name(topic_partition: TopicPartition, token: str) -> str:
    ending = f".{token}{_DELETED_ENDING}"
    return str(topic_partition)[: _NAME_BYTES_MAX - len(ending)] + ending


class PartitionLogStore:
    """Opens and deletes logs in a log directory. Implements `broker.partitions.LogStore`."""

    def __init__(self, folder: LogDirectory, clock: Callable[[], Millis]) -> None:
        self.folder = folder
        self._clock = clock

    def open(
        self, topic_partition: TopicPartition, topic_id: TopicId, settings: LogSettings
    ) -> PartitionLog:
        """The log of a partition: created if absent, recovered if needed."""
        return self.folder.open_partition(
            topic_partition, settings, topic_id=topic_id, now=self._clock()
        )

    def delete(self, log: PartitionLog) -> None:
        """Delete the partition: rename its folder now, remove it later."""
        token = uuid4().hex
        self.folder.delete_partition(log.topic_partition, token=token, now=self._clock())

    def set_aside(self, topic_partition: TopicPartition) -> str:
        """Close the log if it is open and keep its folder under another name, which is returned."""
        return self.folder.set_aside(topic_partition, uuid4().hex, reason="damaged").name

    def close(self) -> None:
        """Close all logs and mark the stop as clean."""
        self.folder.close()
