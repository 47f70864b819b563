"""Which transactional ids a ListTransactions request asks for."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.coordination.transactions.transaction_moves import (
    STATE_BY_TITLE,
    Transaction,
    TransactionState,
)
from penstock.model import Millis, ProducerId


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Conditions that must all be met; an empty set, None or a negative duration is none."""

    states: frozenset[TransactionState] = frozenset()
    has_unknown_states: bool = False  # only unknown states were named: nothing matches
    producer_ids: frozenset[ProducerId] = frozenset()
    longer_than_ms: Millis = Millis(-1)
    matches_id: Callable[[str], bool] | None = None

    def admits(self, transaction: Transaction, now: Millis) -> bool:
        """Whether the list should include it."""
        if (self.states or self.has_unknown_states) and transaction.state not in self.states:
            return False
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.longer_than_ms >= 0 and now - transaction.started_at <= self.longer_than_ms:
            return False
        return self.matches_id is None or self.matches_id(transaction.transactional_id)


def known_states(titles: Iterable[str]) -> tuple[frozenset[TransactionState], tuple[str, ...]]:
    """The states by the names that clients see, and the names that no state has."""
    titles = tuple(titles)
    known = frozenset(STATE_BY_TITLE[title] for title in titles if title in STATE_BY_TITLE)
    return known, tuple(title for title in titles if title not in STATE_BY_TITLE)
