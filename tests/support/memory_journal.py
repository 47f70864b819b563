"""The journal port over a list, for machines in tests and simulations."""

from collections.abc import Callable, Sequence
from typing import Literal

from penstock.errors import Refused
from penstock.machine import Applies, JournalRecord, OnCommitted, TransactionMark
from penstock.model import Millis, Offset


class MemoryJournal:
    """Commits on append, or only when `commit` is called. Can refuse writes."""

    def __init__(self, *, commits_on_append: bool = True) -> None:
        self.records: list[tuple[JournalRecord, TransactionMark | None]] = []
        self.commits_on_append = commits_on_append
        self.failure: Callable[[], Exception | None] = lambda: None  # raised instead of writing
        self.committed_offset = Offset(0)
        self.waiting: list[tuple[Offset, OnCommitted]] = []

    @property
    def applies(self) -> Literal[Applies.ON_APPEND]:
        """There is one writer."""
        return Applies.ON_APPEND

    @property
    def end_offset(self) -> Offset:
        """Where the next record would go."""
        return Offset(len(self.records))

    def append(
        self, records: Sequence[JournalRecord], now: Millis, mark: TransactionMark | None = None
    ) -> Offset | None:
        """Append all records, or none."""
        error = self.failure()
        if error is not None:
            raise error
        self.records += [(record, mark) for record in records]
        if self.commits_on_append:
            self.committed_offset = self.end_offset
            return None
        return self.end_offset

    def call_when_committed(self, end_offset: Offset, call: OnCommitted) -> None:
        """Call from `commit` or `give_up`."""
        self.waiting.append((end_offset, call))

    def commit(self) -> None:
        """Everything so far can no longer be lost."""
        self.committed_offset = self.end_offset
        self._call_waiting(None)

    def give_up(self, refusal: Refused) -> None:
        """What is not committed will never be."""
        self._call_waiting(refusal)

    def _call_waiting(self, refusal: Refused | None) -> None:
        waiting, self.waiting = self.waiting, []
        for _, call in waiting:
            call(refusal)

    def compact(self) -> None:
        """Keep only the last record of each key, as the log's compaction may at any time."""
        last = {record.key: index for index, (record, _) in enumerate(self.records)}
        self.records = [
            stored for index, stored in enumerate(self.records) if last[stored[0].key] == index
        ]
        if self.commits_on_append:
            self.committed_offset = self.end_offset
