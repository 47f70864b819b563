"""Small text files of offsets, in Apache Kafka's format: a version, a count, then a row each.

A checkpoint is replaced whole. One that cannot be read counts as absent: each of them only saves
work, and what it says is found again from the log.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.log.files import replace_file
from penstock.model import Offset, TopicPartition

logger = logging.getLogger(__name__)

_VERSION = 0


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
    rows = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))
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
