"""The invariants of each machine: a state that breaks one fails."""

from collections.abc import Callable
from uuid import UUID

import pytest

from penstock.coordination.controller.apply import apply as apply_to_cluster
from penstock.coordination.controller.events import BrokerSet, PartitionState, TopicSet
from penstock.coordination.controller.state import ClusterState
from penstock.coordination.controller.validate import validate as validate_cluster
from penstock.coordination.groups.apply import apply_event
from penstock.coordination.groups.codec_consumer import MemberState, StoredCurrent
from penstock.coordination.groups.events import (
    CurrentAssignmentSet,
    GroupEpochSet,
    OffsetSet,
    PendingOffsetSet,
    SubscriptionSet,
)
from penstock.coordination.groups.group_moves import ClassicState
from penstock.coordination.groups.state import (
    NO_SUBSCRIPTION,
    ClassicGroup,
    ConsumerGroup,
    GroupsState,
)
from penstock.coordination.groups.validate import validate as validate_groups
from penstock.coordination.transactions.apply import apply as apply_to_transactions
from penstock.coordination.transactions.events import TransactionSet
from penstock.coordination.transactions.state import TransactionsState
from penstock.coordination.transactions.transaction_moves import Transaction, TransactionState
from penstock.coordination.transactions.validate import validate as validate_transactions
from penstock.model import (
    LeaderEpoch,
    Millis,
    NodeId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)

ONE = NodeId(1)
TOPIC_ID = TopicId(UUID(int=5))


def cluster() -> ClusterState:
    state = ClusterState()
    apply_to_cluster(state, BrokerSet(ONE, "localhost", 9092, None))
    row = PartitionState(ONE, LeaderEpoch(0), 0, (ONE,), (ONE,))
    apply_to_cluster(state, TopicSet("t", TOPIC_ID, (row,)))
    return state


def lead_from_outside(state: ClusterState) -> None:
    state.topics["t"].partitions[0] = state.topics["t"].partitions[0]._replace(leader=NodeId(2))


def replicate_twice_on_one_broker(state: ClusterState) -> None:
    state.topics["t"].partitions[0] = state.topics["t"].partitions[0]._replace(replicas=(ONE, ONE))


def lose_the_id(state: ClusterState) -> None:
    state.topics_by_id.clear()


def keep_a_deleted_name(state: ClusterState) -> None:
    state.deleted_topics["t"] = None


@pytest.mark.parametrize(
    "damage", [lead_from_outside, replicate_twice_on_one_broker, lose_the_id, keep_a_deleted_name]
)
def test_a_cluster_that_breaks_an_invariant_fails(damage: Callable[[ClusterState], None]) -> None:
    state = cluster()
    validate_cluster(state)
    damage(state)
    with pytest.raises(AssertionError):
        validate_cluster(state)


def groups() -> GroupsState:
    state = GroupsState()
    apply_event(state, OffsetSet("g", "t", 0, b"v"))
    apply_event(state, PendingOffsetSet(ProducerId(1), "g", "t", 1, b"v"))
    apply_event(state, GroupEpochSet("c", 2))
    for member_id, partition in (("a", 0), ("b", 1)):
        current = StoredCurrent(2, 1, MemberState.STABLE, {TOPIC_ID: {partition: 2}}, {})
        apply_event(state, SubscriptionSet("c", member_id, NO_SUBSCRIPTION))
        apply_event(state, CurrentAssignmentSet("c", member_id, current))
    state.groups["d"] = ClassicGroup("d")
    return state


def consumer_group(state: GroupsState) -> ConsumerGroup:
    group = state.groups["c"]
    assert isinstance(group, ConsumerGroup)
    return group


def own_a_partition_twice(state: GroupsState) -> None:
    group = consumer_group(state)
    current = group.members["a"].current
    group.members["b"] = group.members["b"]._replace(current=current)


def run_ahead_of_the_group(state: GroupsState) -> None:
    group = consumer_group(state)
    group.epoch = 1


def keep_an_empty_entry(state: GroupsState) -> None:
    state.offsets["x"] = {}


def lose_count_of_transactions(state: GroupsState) -> None:
    state.unstable.clear()


def be_stable_without_members(state: GroupsState) -> None:
    group = state.groups["d"]
    assert isinstance(group, ClassicGroup)
    group.state = ClassicState.STABLE


def never_end_a_session(state: GroupsState) -> None:
    state.has_started_sessions = True


@pytest.mark.parametrize(
    "damage",
    [
        own_a_partition_twice,
        run_ahead_of_the_group,
        keep_an_empty_entry,
        lose_count_of_transactions,
        be_stable_without_members,
        never_end_a_session,
    ],
)
def test_groups_that_break_an_invariant_fail(damage: Callable[[GroupsState], None]) -> None:
    state = groups()
    validate_groups(state)
    damage(state)
    with pytest.raises(AssertionError):
        validate_groups(state)


def transactions() -> TransactionsState:
    state = TransactionsState()
    ending = Transaction(
        "t",
        ProducerId(1),
        ProducerEpoch(0),
        Millis(60_000),
        TransactionState.PREPARE_COMMIT,
        frozenset((TopicPartition("a", 0),)),
        updated_at=Millis(1),
        started_at=Millis(1),
    )
    apply_to_transactions(state, TransactionSet(ending))
    return state


def send_no_markers(state: TransactionsState) -> None:
    state.markers_due.clear()


def mark_a_partition_outside(state: TransactionsState) -> None:
    state.unmarked["t"].add(TopicPartition("b", 0))


def end_and_be_ending(state: TransactionsState) -> None:
    state.ended["t"] = Millis(1)


@pytest.mark.parametrize("damage", [send_no_markers, mark_a_partition_outside, end_and_be_ending])
def test_transactions_that_break_an_invariant_fail(
    damage: Callable[[TransactionsState], None],
) -> None:
    state = transactions()
    validate_transactions(state)
    damage(state)
    with pytest.raises(AssertionError):
        validate_transactions(state)
