"""Turns at writing, where all tasks of a job run on one machine.

A transaction has one producer, and a broker accepts a partition's batches in the order of their
sequence numbers only. Tasks that take turns may all write to any partition: the holder of the turn
reads the next number of each partition, records how far it will go, and only then sends. So a
number is given out once, also when its holder dies: then the reports of the successful tasks do not
account for all numbers, and the batch is written again.

The turn is a lock on a file, which ends with the process that has it. Imports no pyspark.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from penstock.model import SequenceNumber, TopicPartition
from penstock.protocol.batch import SEQUENCE_MASK


@dataclass(frozen=True, slots=True)
class WriteTurns:
    """Turns at writing in one transaction, for one job; sent to its tasks."""

    path: str

    @classmethod
    def create(cls, path: Path, sequences: Mapping[TopicPartition, SequenceNumber]) -> "WriteTurns":
        """Turns of a job that starts at these numbers, or at 0; stored in a file."""
        with path.open("wb") as file:
            _write(file, sequences)
        return cls(str(path))

    @contextmanager
    def turn(self) -> Iterator["WriteTurn"]:
        """Wait for the turn, and hold it until the block ends."""
        with Path(self.path).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield WriteTurn(file)

    def end_sequences(self) -> dict[TopicPartition, SequenceNumber]:
        """The next number of each partition, after all that were given out."""
        with self.turn() as turn:
            return turn.sequences


class WriteTurn:
    """The right to write, now."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sequences: Final = {
            TopicPartition(topic, index): SequenceNumber(sequence)
            for topic, index, sequence in json.loads(file.read())
        }

    def take(self, counts: Mapping[TopicPartition, int]) -> dict[TopicPartition, SequenceNumber]:
        """The first number for this many records of each partition; no other task gets them."""
        first = {
            partition: self.sequences.get(partition, SequenceNumber(0)) for partition in counts
        }
        for partition, count in counts.items():
            self.sequences[partition] = SequenceNumber((first[partition] + count) & SEQUENCE_MASK)
        self._file.seek(0)
        _write(self._file, self.sequences)
        return first


def _write(file: BinaryIO, sequences: Mapping[TopicPartition, SequenceNumber]) -> None:
    rows = [
        [partition.topic, partition.partition, sequence]
        for partition, sequence in sequences.items()
    ]
    file.write(json.dumps(rows).encode())
    file.truncate()
    file.flush()
