"""Small text files of offsets, in Apache Kafka's format: a version, a count, then a row each.

A checkpoint is replaced as a whole. One that cannot be read counts as absent: logs are opened
without it too, only with more work, and without knowing what they should contain at least.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.log.files import replace_file
from penstock.model import Offset, TopicPartition

logger: Final = logging.getLogger(__name__)

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
_VERSION = 0


def restore_advice(partition_folder: str) -> str:
    """What to do about a partition that lacks what its checkpoints say it contained."""
    topic, _, partition = partition_folder.rpartition("/")[2].rpartition("-")
    return (
        "restore it from a copy and start again. To go on without what is missing, stop the broker "
        f"and set the offset in the line '{topic} {partition}' to 0 in {RECOVERY_POINTS} and "
        f"{HIGH_WATERMARKS} of the data folder"
    )


def write_rows(path: Path | str, rows: Iterable[str], *, sync: bool = False) -> None:
    lines = list(rows)
    text = "\n".join([str(_VERSION), str(len(lines)), *lines]) + "\n"
    replace_file(str(path), text.encode(), sync=sync)


def read_rows(path: Path | str) -> list[list[str]] | None:
    """The rows, each split at blanks; None when the file is missing or damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        lines = []
    if len(lines) < 2 or lines[0] != str(_VERSION) or lines[1] != str(len(lines) - 2):
        logger.warning("%s is damaged and counts as absent", path)
        return None
    return [line.split() for line in lines[2:]]


def write_offsets(path: Path | str, offsets: Mapping[TopicPartition, Offset]) -> None:
    rows = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
    write_rows(path, rows, sync=True)


def read_offsets(path: Path | str) -> dict[TopicPartition, Offset]:
    try:
        return {
            TopicPartition(topic, int(partition)): Offset(int(offset))
            for topic, partition, offset in read_rows(path) or ()
        }
    except ValueError:
        logger.warning("%s is damaged and counts as absent", path)
        return {}


class CheckpointWork:
    """Offsets that are to be in the files of a log folder; done in any thread."""

    def __init__(self, checkpoints: "OffsetCheckpoints") -> None:
        self.number: int = checkpoints.planned
        self._checkpoints = checkpoints

    def run(self) -> None:
        """Write and sync the files, unless other work has done so since this was planned."""
        self._checkpoints.write(self.number)


class OffsetCheckpoints:
    """Where each partition of a folder starts, and how far it is on disk and committed.

    In memory, changed by the event loop; on disk as of the last work that was run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.recovery_points: dict[TopicPartition, Offset] = read_offsets(folder / RECOVERY_POINTS)
        self.start_offsets: dict[TopicPartition, Offset] = read_offsets(folder / START_OFFSETS)
        self.high_watermarks: dict[TopicPartition, Offset] = read_offsets(folder / HIGH_WATERMARKS)
        self.planned: int = 0  # the number of the last work
        self._written = 0  # the number of the work that is on disk
        self._writing = threading.Lock()  # one work writes at a time
        self._removed: dict[TopicPartition, int] = {}  # the number of the first work without it

    def remove(self, topic_partition: TopicPartition) -> None:
        """The partition is deleted."""
        for rows in (self.recovery_points, self.start_offsets, self.high_watermarks):
            if rows.pop(topic_partition, None) is not None:
                self._removed[topic_partition] = self.planned + 1

    def may_have_row(self, topic_partition: TopicPartition) -> bool:
        """Whether the files may still have rows of a deleted partition."""
        return self._removed.get(topic_partition, 0) > self._written

    @property
    def has_deleted_rows(self) -> bool:
        """Whether the files may still have rows of any deleted partition."""
        return any(number > self._written for number in self._removed.values())

    def plan(self) -> CheckpointWork:
        self.planned += 1
        self._removed = {
            name: number for name, number in self._removed.items() if number > self._written
        }
        return CheckpointWork(self)

    def write(self, number: int) -> None:
        """What `CheckpointWork.run` does: work that was planned meanwhile is done with it.

        A recovery point may rely on the start that goes with it: starts are read last, and written
        first. To copy a dict is one step for the event loop, which changes it meanwhile.
        """
        with self._writing:
            if number <= self._written:
                return
            planned = self.planned
            recovery_points, high_watermarks = (
                self.recovery_points.copy(),
                self.high_watermarks.copy(),
            )
            starts = self.start_offsets.copy()
            started = {name: offset for name, offset in starts.items() if offset > 0}
            write_offsets(self._folder / START_OFFSETS, started)
            write_offsets(self._folder / RECOVERY_POINTS, recovery_points)
            write_offsets(self._folder / HIGH_WATERMARKS, high_watermarks)
            self._written = planned
