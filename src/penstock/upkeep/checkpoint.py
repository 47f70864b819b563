"""How far each partition has been compacted: `cleaner-offset-checkpoint` of its log folder.

Only saves work: a partition without a row is compacted from its start again, to the same end.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.log.checkpoints import read_offsets, write_offsets
from penstock.model import Offset, TopicPartition

NAME: Final = "cleaner-offset-checkpoint"


class CleanerCheckpoints:
    """The checkpoints of all log folders, each read when first asked for."""

    def __init__(self) -> None:
        self._by_folder: dict[Path, dict[TopicPartition, Offset]] = {}

    def offset(self, log_folder: Path, partition: TopicPartition) -> Offset | None:
        """Where the partition's dirty part starts, if it was ever cleaned."""
        return self._rows(log_folder).get(partition)

    def advance(self, log_folder: Path, partition: TopicPartition, offset: Offset) -> None:
        """The partition is clean up to here, on disk too."""
        rows = self._rows(log_folder)
        rows[partition] = offset
        write_offsets(log_folder / NAME, dict(rows))

    def forget(self, log_folder: Path, partitions: Iterable[TopicPartition]) -> None:
        """These are gone: whatever takes their names starts unclean."""
        rows = self._rows(log_folder)
        known = [partition for partition in partitions if partition in rows]
        for partition in known:
            del rows[partition]
        if known:
            write_offsets(log_folder / NAME, rows)

    def _rows(self, log_folder: Path) -> dict[TopicPartition, Offset]:
        if log_folder not in self._by_folder:
            rows = read_offsets(log_folder / NAME)
            self._by_folder[log_folder] = {
                partition: offset
                for partition, offset in rows.items()
                if (log_folder / str(partition)).is_dir()
            }
        return self._by_folder[log_folder]
