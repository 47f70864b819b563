"""Whose turn it is to write, where all tasks of a job run on one machine.

A transaction has one producer, and a broker takes a partition's batches in the order of their
sequences only. Tasks that take turns may all write to any partition: whoever has the turn learns
the next sequence of each, notes how far it will go, and only then sends. So a sequence is given out
once, and never again when its holder dies with it: what the tasks that ended well have written does
not add up to what was given out, and the batch is written again.

The turn is a lock on a file, which ends with the process that has it. Imports no pyspark.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.model import SequenceNumber, TopicPartition
from penstock.spark.batch_transaction import SEQUENCE_MASK


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns at writing in one transaction, for one job; travels to its tasks."""

    path: str

    @classmethod
    def begin(cls, folder: str, sequences: Mapping[TopicPartition, SequenceNumber]) -> "Turns":
        """Turns of a job that starts at these sequences, at 0 where there is none."""
        path = Path(folder) / "turns"
        with path.open("xb") as file:
            _write(file, sequences)
        return cls(str(path))

    @contextmanager
    def turn(self) -> Iterator["Turn"]:
        """Wait for the turn, and have it until the block ends."""
        with Path(self.path).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield Turn(file)

    def end_sequences(self) -> dict[TopicPartition, SequenceNumber]:
        """How far each partition has been given out."""
        with self.turn() as turn:
            return turn.sequences


class Turn:
    """The right to write, now."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sequences = {
            TopicPartition(topic, partition): SequenceNumber(sequence)
            for topic, partition, sequence in json.loads(file.read())
        }

    def take(self, counts: Mapping[TopicPartition, int]) -> dict[TopicPartition, SequenceNumber]:
        """The first sequence for so many records in each place; they are nobody else's from now."""
        first = {place: self.sequences.get(place, SequenceNumber(0)) for place in counts}
        for place, count in counts.items():
            self.sequences[place] = SequenceNumber((first[place] + count) & SEQUENCE_MASK)
        self._file.seek(0)
        _write(self._file, self.sequences)
        return first


def _write(file: BinaryIO, sequences: Mapping[TopicPartition, SequenceNumber]) -> None:
    rows = [[place.topic, place.partition, sequence] for place, sequence in sequences.items()]
    file.write(json.dumps(rows).encode())
    file.truncate()
    file.flush()
