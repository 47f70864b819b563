"""The state under any history: a compacted log replays to the same state, tables stay small."""

from typing import Any, Protocol

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordination.transactions import (
    Transaction,
    TransactionFilter,
    TransactionMachine,
    TransactionSettings,
    TransactionsState,
    TransactionState,
    known_states,
)
from penstock.coordination.transactions.apply import apply
from penstock.coordination.transactions.events import (
    MarkersConfirmed,
    TransactionalIdExpired,
    TransactionSet,
)
from penstock.coordination.transactions.validate import validate
from penstock.model import Millis, Moment, ProducerEpoch, ProducerId, TopicPartition
from tests.support.settings import default_settings

NOW = Millis(1_000_000)
PARTITIONS = frozenset((TopicPartition("a", 0),))


class Scenario(Protocol):
    state: TransactionsState
    journal: Any
    runner: Any
    lines: list[str]
    now: Millis  # by the steady clock
    moment: Moment

    def step(self, line: str) -> str: ...


def transaction(
    name: str, state: TransactionState, *, epoch: int = 0, started_at: int = NOW
) -> Transaction:
    return Transaction(
        name,
        ProducerId(1),
        ProducerEpoch(epoch),
        Millis(60_000),
        state,
        frozenset() if state.is_ended else PARTITIONS,
        updated_at=NOW,
        started_at=Millis(started_at),
    )


events = st.one_of(
    st.builds(
        lambda name, state, epoch, started: TransactionSet(
            transaction(name, state, epoch=epoch, started_at=started)
        ),
        st.sampled_from("xyz"),
        st.sampled_from(list(TransactionState)[:6]),
        st.integers(0, 3),
        st.integers(NOW, NOW + 3),
    ),
    st.builds(TransactionalIdExpired, st.sampled_from("xyz")),
)


@settings(deadline=None, max_examples=200)
@given(history=st.lists(events, max_size=40))
def test_replaying_only_the_last_value_of_each_key_gives_the_same_state(
    history: list[TransactionSet | TransactionalIdExpired],
) -> None:
    lived, recovered = TransactionsState(), TransactionsState()
    last: dict[str, TransactionSet | TransactionalIdExpired] = {}
    for event in history:
        apply(lived, event)
        apply(lived, event)  # twice is as once
        name = (
            event.transactional_id
            if isinstance(event, TransactionalIdExpired)
            else event[0].transactional_id
        )
        last.pop(name, None)
        last[name] = event
    for event in last.values():
        apply(recovered, event)
    assert recovered.by_id == lived.by_id
    assert recovered.ended == lived.ended
    assert recovered.unmarked == lived.unmarked
    machine = TransactionMachine(default_settings(TransactionSettings))
    assert machine.wake_at(recovered) == machine.wake_at(lived)
    validate(recovered)
    validate(lived)


def test_the_deadlines_of_ended_transactions_are_dropped() -> None:
    state = TransactionsState()
    apply(state, TransactionSet(transaction("slow", TransactionState.ONGOING)))
    for number in range(1000):
        started = NOW + 1 + number
        apply(
            state,
            TransactionSet(transaction("quick", TransactionState.ONGOING, started_at=started)),
        )
        apply(state, TransactionSet(transaction("quick", TransactionState.COMPLETE_COMMIT)))
    assert len(state.deadlines) < 100


def test_a_confirmation_of_another_epoch_is_ignored() -> None:
    state = TransactionsState()
    apply(state, TransactionSet(transaction("t", TransactionState.PREPARE_COMMIT, epoch=5)))
    apply(state, MarkersConfirmed("t", ProducerId(1), ProducerEpoch(4), PARTITIONS))
    assert state.unmarked["t"] == PARTITIONS
    apply(state, MarkersConfirmed("t", ProducerId(1), ProducerEpoch(5), PARTITIONS))
    assert state.unmarked["t"] == set()


def test_many_transactions_time_out_in_several_ticks(scenario: Scenario) -> None:
    for number in range(450):
        scenario.step(f"init t{number}")
        scenario.step(f"add t{number} {1000 + number}/0 a-0")
    scenario.now = Millis(scenario.now + 60_000)
    aborted = []
    for _ in range(3):
        scenario.lines = []
        scenario.runner.tick(scenario.moment)
        aborted.append(sum("abort" in line for line in scenario.lines))
    assert sum(aborted) == 450
    assert max(aborted) == 200


def test_a_filter_selects_transactions() -> None:
    ongoing = transaction("orders", TransactionState.ONGOING)
    states, unknown = known_states(["Ongoing", "Sleeping"])
    assert (states, unknown) == (frozenset((TransactionState.ONGOING,)), ("Sleeping",))
    later = Millis(NOW + 1000)
    assert TransactionFilter().admits(ongoing, later)
    assert TransactionFilter(states=states).admits(ongoing, later)
    assert not TransactionFilter(has_unknown_states=True).admits(ongoing, later)
    assert not TransactionFilter(producer_ids=frozenset((ProducerId(2),))).admits(ongoing, later)
    assert TransactionFilter(longer_than_ms=Millis(999)).admits(ongoing, later)
    assert not TransactionFilter(longer_than_ms=Millis(1000)).admits(ongoing, later)
    assert not TransactionFilter(matches_id=lambda name: name == "bills").admits(ongoing, later)
