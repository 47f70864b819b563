"""What a program is done with, held until quarantine has its part of it.

No offset is stored while something before it is still on its way to quarantine. Waiting for each
such record alone would be slow, so with some on their way offsets wait for others to join them.
"""

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Message

from penstock.client.intake import end_offsets
from penstock.client.progress import Progress
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.model import Offset, TopicPartition

SETTLE_RECORDS: Final = 500  # so many wait together at the most
SETTLE_S: Final = 0.5  # and so long


class Settling:
    """For one consumer, on the program's thread."""

    def __init__(self, quarantine: QuarantineWriter, progress: Progress) -> None:
        self._quarantine = quarantine
        self._progress = progress
        self._ends: dict[TopicPartition, Offset] = {}
        self._records = 0
        self._since_s = 0.0

    def done(self, messages: Sequence[Message]) -> None:
        """The program asked past these."""
        self._ends |= end_offsets(messages)
        now_s = time.monotonic()
        if not self._records:
            self._since_s = now_s
        self._records += len(messages)
        if (
            not self._quarantine.is_waiting
            or self._records >= SETTLE_RECORDS
            or now_s - self._since_s >= SETTLE_S
        ):
            self.settle()

    def settle(self) -> None:
        """All that is done may be committed; waits for quarantine, and raises if that failed."""
        self._quarantine.settle()
        ends, self._ends, self._records = self._ends, {}, 0
        self._progress.done(ends)
