"""What holds for every history: replay of the compacted log is recovery, and queues stay small."""

from typing import Any, Protocol

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordination.transactions import (
    Filter,
    Transaction,
    TransactionMachine,
    Transactions,
    TransactionSettings,
    TransactionState,
    known_states,
)
from penstock.coordination.transactions.state import Expired, MarkersConfirmed, Stored, apply
from penstock.model import Millis, Moment, ProducerEpoch, ProducerId, TopicPartition
from tests.support.settings import default_settings

NOW = Millis(1_000_000)
ONE = frozenset((TopicPartition("a", 0),))


class Desk(Protocol):
    state: Transactions
    journal: Any
    runner: Any
    said: list[str]
    now: Millis  # by the steady clock
    moment: Moment

    def say(self, step: str) -> str: ...


def transaction(
    name: str, state: TransactionState, *, epoch: int = 0, started_at: int = NOW
) -> Transaction:
    return Transaction(
        name,
        ProducerId(1),
        ProducerEpoch(epoch),
        Millis(60_000),
        state,
        frozenset() if state.is_settled else ONE,
        updated_at=NOW,
        started_at=Millis(started_at),
    )


events = st.one_of(
    st.builds(
        lambda name, state, epoch, started: Stored(
            transaction(name, state, epoch=epoch, started_at=started)
        ),
        st.sampled_from("xyz"),
        st.sampled_from(list(TransactionState)[:6]),
        st.integers(0, 3),
        st.integers(NOW, NOW + 3),
    ),
    st.builds(Expired, st.sampled_from("xyz")),
)


@settings(deadline=None, max_examples=200)
@given(history=st.lists(events, max_size=40))
def test_replaying_only_the_last_value_of_each_key_gives_the_same_state(
    history: list[Stored | Expired],
) -> None:
    lived, recovered = Transactions(), Transactions()
    last: dict[str, Stored | Expired] = {}
    for event in history:
        apply(lived, event)
        apply(lived, event)  # the second time means the same
        name = event.transactional_id if isinstance(event, Expired) else event[0].transactional_id
        last.pop(name, None)
        last[name] = event
    for event in last.values():
        apply(recovered, event)
    assert recovered.by_id == lived.by_id
    assert recovered.settled == lived.settled
    assert recovered.unmarked == lived.unmarked
    machine = TransactionMachine(default_settings(TransactionSettings))
    assert machine.wake_at(recovered) == machine.wake_at(lived)
    for name, found in lived.by_id.items():
        queues = (name in lived.settled, name in lived.markers_due, found.state == 1)
        assert sum(queues) == 1


def test_ended_transactions_leave_no_heap_of_deadlines() -> None:
    state = Transactions()
    apply(state, Stored(transaction("slow", TransactionState.ONGOING)))
    for number in range(1000):
        started = NOW + 1 + number
        apply(state, Stored(transaction("quick", TransactionState.ONGOING, started_at=started)))
        apply(state, Stored(transaction("quick", TransactionState.COMPLETE_COMMIT)))
    assert len(state.deadlines) < 100


def test_a_confirmation_of_another_epoch_says_nothing() -> None:
    state = Transactions()
    apply(state, Stored(transaction("t", TransactionState.PREPARE_COMMIT, epoch=5)))
    apply(state, MarkersConfirmed("t", ProducerId(1), ProducerEpoch(4), ONE))
    assert state.unmarked["t"] == ONE
    apply(state, MarkersConfirmed("t", ProducerId(1), ProducerEpoch(5), ONE))
    assert state.unmarked["t"] == set()


def test_many_transactions_time_out_in_several_ticks(desk: Desk) -> None:
    for number in range(450):
        desk.say(f"init t{number}")
        desk.say(f"add t{number} {1000 + number}/0 a-0")
    desk.now = Millis(desk.now + 60_000)
    aborted = []
    for _ in range(3):
        desk.said = []
        desk.runner.tick(desk.moment)
        aborted.append(sum("abort" in line for line in desk.said))
    assert sum(aborted) == 450
    assert max(aborted) == 200


def test_filters_narrow_a_list() -> None:
    ongoing = transaction("orders", TransactionState.ONGOING)
    states, unknown = known_states(["Ongoing", "Sleeping"])
    assert (states, unknown) == (frozenset((TransactionState.ONGOING,)), ("Sleeping",))
    later = Millis(NOW + 1000)
    assert Filter().admits(ongoing, later)
    assert Filter(states=states).admits(ongoing, later)
    assert not Filter(has_unknown_states=True).admits(ongoing, later)
    assert not Filter(producer_ids=frozenset((ProducerId(2),))).admits(ongoing, later)
    assert Filter(longer_than_ms=Millis(999)).admits(ongoing, later)
    assert not Filter(longer_than_ms=Millis(1000)).admits(ongoing, later)
    assert not Filter(matches_id=lambda name: name == "bills").admits(ongoing, later)
