"""Small text files of offsets, in Apache Kafka's format: a version, a count, then a row each.

A checkpoint is replaced whole. One that cannot be read counts as absent: a log is opened without
it too, only with more work, and without knowing what it should hold at least.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.log.files import replace_file
from penstock.model import Offset, TopicPartition

logger = logging.getLogger(__name__)

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
_VERSION = 0


def restore_advice(partition_folder: str) -> str:
    """What to do about a partition that lacks what its checkpoints say was there."""
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


def read_rows(path: Path | str) -> list[list[str]]:
    """The rows, each split at blanks; none when the file is missing or damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        lines = []
    if len(lines) < 2 or lines[0] != str(_VERSION) or lines[1] != str(len(lines) - 2):
        logger.warning("%s is damaged and counts as absent", path)
        return []
    return [line.split() for line in lines[2:]]


def write_offsets(path: Path | str, offsets: Mapping[TopicPartition, Offset]) -> None:
    rows = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
    write_rows(path, rows, sync=True)


def read_offsets(path: Path | str) -> dict[TopicPartition, Offset]:
    try:
        return {
            TopicPartition(topic, int(partition)): Offset(int(offset))
            for topic, partition, offset in read_rows(path)
        }
    except ValueError:
        logger.warning("%s is damaged and counts as absent", path)
        return {}
