"""Which transactions the cleaner is inside of while it walks a log. Pure.

Fed each transactional batch and each marker in offset order. A batch of an aborted transaction can
go. A marker can go once no batch of its transaction is left before it: until then a reader needs
the marker (and the `.txnindex` entry of an abort) to tell whether to show those records.
"""

from collections import deque
from collections.abc import Iterable

from penstock.log.txn_index import AbortedTransaction
from penstock.model import Offset, ProducerId


class WalkedTransactions:
    """The state of one walk from `start_offset` on."""

    def __init__(self, aborted: Iterable[AbortedTransaction], start_offset: Offset) -> None:
        # One that ended before the walk starts has no marker to meet: it would stay open for ever.
        ahead = (entry for entry in set(aborted) if entry.last_offset >= start_offset)
        self._ahead = deque(sorted(ahead, key=lambda entry: entry.first_offset))
        self._aborted: dict[ProducerId, AbortedTransaction] = {}
        self._seen_aborted: set[ProducerId] = set()
        self._seen_committed: set[ProducerId] = set()

    def on_batch(self, producer_id: ProducerId, last_offset: Offset) -> bool:
        """A transactional batch; True when it was aborted."""
        self._move_to(last_offset)
        entry = self._aborted.get(producer_id)
        if entry is not None and last_offset <= entry.last_offset:
            self._seen_aborted.add(producer_id)
            return True
        self._seen_committed.add(producer_id)
        return False

    def on_commit(self, producer_id: ProducerId, offset: Offset) -> bool:
        """A commit marker; True when nothing of its transaction is left."""
        self._move_to(offset)
        if producer_id not in self._seen_committed:
            return True
        self._seen_committed.remove(producer_id)
        return False

    def on_abort(
        self, producer_id: ProducerId, offset: Offset
    ) -> tuple[bool, AbortedTransaction | None]:
        """An abort marker: whether nothing of its transaction is left, else the entry to keep."""
        self._move_to(offset)
        entry = self._aborted.pop(producer_id, None)
        if producer_id not in self._seen_aborted:
            return True, None
        self._seen_aborted.remove(producer_id)
        return False, entry

    def _move_to(self, offset: Offset) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            entry = self._ahead.popleft()
            # A producer has one transaction at a time: an earlier one ended, its marker is gone.
            self._aborted[entry.producer_id] = entry
