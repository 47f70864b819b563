"""Recovery of large logs in a thread, before they are opened: the event loop stays free meanwhile.

A log is checked and closed here, as if its last stop had been clean. What fails is left for the
open, which reports it. Never runs beside anything else that uses the same partition.
"""

import logging
import os
from pathlib import Path
from typing import Final, NamedTuple

from penstock.errors import Malformed, Refused
from penstock.log.files import OpenFiles
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery import RecoveredBytes
from penstock.log.segment import base_offset_of
from penstock.log.settings import LogSettings
from penstock.model import Millis, Offset, TopicPartition

logger: Final = logging.getLogger(__name__)

CHECKED_BYTES_MIN: Final = 4 << 20  # less is checked in milliseconds when the log is opened
_FILES_MAX: Final = 16


class Unchecked(NamedTuple):
    """A partition after an unclean stop, and what the checkpoints say of it."""

    topic_partition: TopicPartition
    settings: LogSettings
    recovery_point: Offset
    start_offset: Offset


class CrashRecovery:
    """Checks the logs of a folder."""

    def __init__(self, folder: Path, partitions: list[Unchecked], now: Millis) -> None:
        self.checked: dict[TopicPartition, RecoveredBytes] = {}
        self._folder = folder
        self._partitions = partitions
        self._now = now

    def run(self) -> None:
        """May take long, and may run in any thread."""
        files = OpenFiles(_FILES_MAX)  # those of the event loop are not shared
        for unchecked in self._partitions:
            folder = self._folder / str(unchecked.topic_partition)
            try:
                size_bytes = _unchecked_bytes(folder, unchecked.recovery_point)
                if size_bytes >= CHECKED_BYTES_MIN:
                    recovered = self._check(folder, unchecked, files)
                    self.checked[unchecked.topic_partition] = recovered
            except (OSError, Refused, Malformed) as error:
                logger.debug("%s will be checked when it is opened: %s", folder, error)
        files.close_all()

    def _check(self, folder: Path, unchecked: Unchecked, files: OpenFiles) -> RecoveredBytes:
        log = PartitionLog.open(
            folder,
            unchecked.settings,
            files,
            now=self._now,
            clean=False,
            recovery_point=unchecked.recovery_point,
            start_offset=unchecked.start_offset,
        )
        log.close(sync=False)
        return log.recovered


def _unchecked_bytes(folder: Path, recovery_point: Offset) -> int:
    """The size of the segments that may have batches after the recovery point."""
    logs = [name for name in os.listdir(folder) if name.endswith(".log")]
    bases = sorted((base, name) for name in logs if (base := base_offset_of(name[:-4])) is not None)
    size_bytes = 0
    for base, name in reversed(bases):
        size_bytes += (folder / name).stat().st_size
        if base <= recovery_point:
            break
    return size_bytes
