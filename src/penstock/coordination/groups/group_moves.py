"""The states of groups and of their members, and the legal moves between them."""

from enum import Enum
from typing import Final

from penstock.coordination.groups.codec_consumer import MemberState
from penstock.machine import Move, Transitions


class ClassicState(Enum):
    """The life of a classic group, under the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # members are joining
    COMPLETING = "CompletingRebalance"  # the leader works out the assignment
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerState(Enum):
    """The life of a group of the consumer protocol, as ConsumerGroupDescribe shows it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the target assignment is older than the group
    RECONCILING = "Reconciling"  # members are on their way to the target
    STABLE = "Stable"
    DEAD = "Dead"


_C = ClassicState
CLASSIC_MOVES: Final = Transitions(
    "classic group",
    Move(_C.EMPTY, _C.PREPARING, "the first member joins"),
    Move(_C.EMPTY, _C.DEAD, "deleted, expired, or used by the consumer protocol"),
    Move(_C.PREPARING, _C.COMPLETING, "all members joined, or the time to join is over"),
    Move(_C.PREPARING, _C.EMPTY, "the time to join is over and no member is left"),
    Move(_C.PREPARING, _C.DEAD, "changed to the consumer protocol"),
    Move(_C.COMPLETING, _C.STABLE, "the leader sent the assignment"),
    Move(_C.COMPLETING, _C.PREPARING, "a member joined, left, or did not sync in time"),
    Move(_C.COMPLETING, _C.DEAD, "changed to the consumer protocol"),
    Move(_C.STABLE, _C.PREPARING, "a member joined, changed, left, or timed out"),
    Move(_C.STABLE, _C.DEAD, "changed to the consumer protocol"),
    name=lambda state: state.value,
)

_G = ConsumerState
CONSUMER_MOVES: Final = Transitions(
    "group of the consumer protocol",
    Move(_G.EMPTY, _G.RECONCILING, "the first member joins, and must wait for a partition"),
    Move(_G.EMPTY, _G.STABLE, "the first member joins, and has its assignment"),
    Move(_G.EMPTY, _G.DEAD, "deleted, expired, or used by the classic protocol"),
    Move(_G.ASSIGNING, _G.ASSIGNING, "another member leaves before the next heartbeat"),
    Move(_G.ASSIGNING, _G.RECONCILING, "a heartbeat computes the assignment"),
    Move(_G.ASSIGNING, _G.STABLE, "a heartbeat computes the assignment, and no member must wait"),
    Move(_G.ASSIGNING, _G.EMPTY, "the last member leaves"),
    Move(_G.ASSIGNING, _G.DEAD, "changed to the classic protocol"),
    Move(_G.RECONCILING, _G.RECONCILING, "one of several members reaches its target"),
    Move(_G.RECONCILING, _G.STABLE, "the last member reaches its target"),
    Move(_G.RECONCILING, _G.ASSIGNING, "a member leaves or times out"),
    Move(_G.RECONCILING, _G.EMPTY, "the last member leaves"),
    Move(_G.RECONCILING, _G.DEAD, "changed to the classic protocol"),
    Move(_G.STABLE, _G.STABLE, "a change moves no partition that must wait"),
    Move(_G.STABLE, _G.RECONCILING, "a member joins or changes, or a topic changes"),
    Move(_G.STABLE, _G.ASSIGNING, "a member leaves or times out"),
    Move(_G.STABLE, _G.EMPTY, "the last member leaves"),
    Move(_G.STABLE, _G.DEAD, "changed to the classic protocol"),
    name=lambda state: state.value,
)

_M = MemberState
_REVOKE = "the next target needs partitions back first"
_WAIT = "it reaches the epoch and waits for partitions of other members"
_REACH = "it reaches the epoch with its whole target"
MEMBER_MOVES: Final = Transitions(
    "member of the consumer protocol",
    *(Move(before, _M.UNREVOKED_PARTITIONS, _REVOKE) for before in _M),
    *(Move(before, _M.UNRELEASED_PARTITIONS, _WAIT) for before in _M),
    *(Move(before, _M.STABLE, _REACH) for before in _M),
)
