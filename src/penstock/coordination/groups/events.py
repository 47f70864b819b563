"""What happens to groups. Events are logged; notes are soft, and lost on failover.

Each event is an upsert by its key, or a tombstone where its last field is None.
"""

from typing import NamedTuple, TypeAlias

from penstock.coordination.groups.codec_classic import StoredGroup
from penstock.coordination.groups.codec_consumer import (
    Assignment,
    StoredCurrent,
    StoredRegex,
    StoredSubscription,
)
from penstock.coordination.groups.state import ClassicGroup, TopicCatalogue
from penstock.coordination.groups.timers import TimerKey
from penstock.model import Millis, Moment, ProducerId


class OffsetSet(NamedTuple):
    """A group's offset in a partition; the value is packed as the log keeps it."""

    group_id: str
    topic: str
    partition: int
    value: bytes | None


class PendingOffsetSet(NamedTuple):
    """An offset that counts once the producer's transaction commits."""

    producer_id: ProducerId
    group_id: str
    topic: str
    partition: int
    value: bytes


class TransactionEnded(NamedTuple):
    """A marker was written to this partition of the log: never logged here, always observed."""

    producer_id: ProducerId
    is_commit: bool


class ClassicGroupSet(NamedTuple):
    """A classic group finished a rebalance, became empty, or was deleted."""

    group_id: str
    stored: StoredGroup | None


class GroupEpochSet(NamedTuple):
    """A group of the consumer protocol needs a new assignment, or was deleted."""

    group_id: str
    epoch: int | None
    metadata_hash: int = 0


class SubscriptionSet(NamedTuple):
    """A member of a consumer-protocol group joined, changed, or was removed."""

    group_id: str
    member_id: str
    subscription: StoredSubscription | None


class TargetEpochSet(NamedTuple):
    """The target assignment of this epoch is complete."""

    group_id: str
    epoch: int | None
    assigned_at: int = 0


class TargetAssignmentSet(NamedTuple):
    """What a member shall have."""

    group_id: str
    member_id: str
    assignment: Assignment | None


class CurrentAssignmentSet(NamedTuple):
    """What a member has."""

    group_id: str
    member_id: str
    current: StoredCurrent | None


class RegexSet(NamedTuple):
    """The topics that a regular expression matches."""

    group_id: str
    regex: str
    resolved: StoredRegex | None


class ClassicGroupReplaced(NamedTuple):
    """Note: the whole group, with all that its record does not keep. None: removed."""

    group_id: str
    group: ClassicGroup | None


class TimerSet(NamedTuple):
    """Note: a deadline was set, moved or dropped."""

    key: TimerKey
    at: Millis | None


class TimersAdvanced(NamedTuple):
    """Note: everything due up to now was acted on."""

    now: Millis


class TopicsChecked(NamedTuple):
    """Note: a group was checked against these topics."""

    group_id: str
    topics: TopicCatalogue


class SessionsStarted(NamedTuple):
    """Note: the log was read, and sessions began."""


Event: TypeAlias = (
    OffsetSet
    | PendingOffsetSet
    | TransactionEnded
    | ClassicGroupSet
    | GroupEpochSet
    | SubscriptionSet
    | TargetEpochSet
    | TargetAssignmentSet
    | CurrentAssignmentSet
    | RegexSet
    | ClassicGroupReplaced
    | TimerSet
    | TimersAdvanced
    | TopicsChecked
    | SessionsStarted
)


def timer_set(
    kind: str, group_id: str, member_id: str, now: Moment, after_ms: int | None
) -> TimerSet:
    """A deadline from now; None drops it."""
    at = None if after_ms is None else Millis(now.steady + after_ms)
    return TimerSet(TimerKey(kind, group_id, member_id), at)
