"""Assignment in the consumer protocol: the two assignors of the broker, and reconciliation.

`uniform` gives all members the same number of partitions, give or take one, and moves no more than
that needs. `range` gives each member a range of partitions of every topic, the same in each topic,
so that topics of equal size are co-partitioned. Both are deterministic.

Reconciliation takes one member from what it has to what it shall have. Revocation comes first: a
member keeps its epoch until it has given back what it must, and a partition is assigned only when
it has no owner. So it never has two owners.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple
from uuid import UUID

from penstock.coordination.groups.codec_consumer import (
    Assignment,
    MemberState,
    Owned,
    StoredCurrent,
)

PartitionId = tuple[UUID, int]


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    previous: Assignment  # its last target


Assignor = Callable[
    [Sequence[Subscriber], Mapping[UUID, int]], dict[str, dict[UUID, tuple[int, ...]]]
]


def assign_range(
    subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> dict[str, dict[UUID, tuple[int, ...]]]:
    """A range of each topic for every member, in order of instance or member id."""
    ordered = sorted(subscribers, key=lambda s: s.instance_id or s.member_id)
    assigned: dict[str, dict[UUID, tuple[int, ...]]] = {s.member_id: {} for s in subscribers}
    for topic_id, count in partition_counts.items():
        takers = [s.member_id for s in ordered if topic_id in s.topics]
        start = 0
        for index, member_id in enumerate(takers):
            size = count // len(takers) + (index < count % len(takers))
            if size:
                assigned[member_id][topic_id] = tuple(range(start, start + size))
            start += size
    return assigned


def assign_uniform(
    subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> dict[str, dict[UUID, tuple[int, ...]]]:
    """Equal numbers, and all members keep what they had as far as that allows."""
    ordered = sorted(subscribers, key=lambda s: s.member_id)
    owned, free = _keep_previous(ordered, partition_counts)
    if len({subscriber.topics for subscriber in ordered}) <= 1:
        _fill_to_quota(owned, free)
    else:
        previous = {partition for mine in owned.values() for partition in mine}
        takers = {
            topic_id: [s.member_id for s in ordered if topic_id in s.topics]
            for topic_id in partition_counts
        }
        _give_to_least_loaded(owned, free, takers)
        _level(owned, takers, previous)
    return {member_id: _by_topic(mine) for member_id, mine in owned.items()}


def _keep_previous(
    ordered: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> tuple[dict[str, list[PartitionId]], list[PartitionId]]:
    subscribed = frozenset().union(*(subscriber.topics for subscriber in ordered))
    free = {
        (topic_id, partition): None
        for topic_id in sorted(subscribed & partition_counts.keys())
        for partition in range(partition_counts[topic_id])
    }
    owned: dict[str, list[PartitionId]] = {}
    for subscriber in ordered:
        mine = owned[subscriber.member_id] = []
        for topic_id, partitions in subscriber.previous.items():
            if topic_id not in subscriber.topics:
                continue
            for partition in partitions:
                if (topic_id, partition) in free:
                    del free[topic_id, partition]
                    mine.append((topic_id, partition))
    return owned, list(free)


def _fill_to_quota(owned: dict[str, list[PartitionId]], free: list[PartitionId]) -> None:
    """All have the same topics: the optimum is known, and reached with the fewest moves."""
    if not owned:
        return
    total = len(free) + sum(map(len, owned.values()))
    minimum, extras = divmod(total, len(owned))
    for mine in sorted(owned.values(), key=len, reverse=True):
        if len(mine) > minimum and extras:
            quota, extras = minimum + 1, extras - 1
        else:
            quota = minimum
        free += mine[quota:]
        del mine[quota:]
    free.sort(reverse=True)
    for mine in owned.values():
        while len(mine) < minimum:
            mine.append(free.pop())
    for mine in owned.values():
        if not free:
            break
        if len(mine) == minimum:
            mine.append(free.pop())


def _give_to_least_loaded(
    owned: dict[str, list[PartitionId]],
    free: list[PartitionId],
    takers: Mapping[UUID, Sequence[str]],
) -> None:
    """Topics with few subscribers go first."""
    queues = {
        topic_id: [(len(owned[member_id]), member_id) for member_id in members]
        for topic_id, members in takers.items()
    }
    for queue in queues.values():
        heapify(queue)
    for partition in sorted(free, key=lambda p: (len(takers[p[0]]), p)):
        queue = queues[partition[0]]
        while True:
            load, member_id = heappop(queue)
            if load == len(owned[member_id]):
                break
            heappush(queue, (len(owned[member_id]), member_id))  # grew through another topic
        owned[member_id].append(partition)
        heappush(queue, (load + 1, member_id))


def _level(
    owned: dict[str, list[PartitionId]],
    takers: Mapping[UUID, Sequence[str]],
    previous: set[PartitionId],
) -> None:
    """Move single partitions to members with fewer while that balances the numbers."""
    moved = True
    while moved:
        moved = False
        for owner in sorted(owned, key=lambda member_id: -len(owned[member_id])):
            # What was assigned just now moves before what a member already reads.
            for partition in sorted(owned[owner], key=lambda p: (p in previous, p)):
                taker = min(takers[partition[0]], key=lambda member_id: len(owned[member_id]))
                if len(owned[owner]) - len(owned[taker]) >= 2:
                    owned[owner].remove(partition)
                    owned[taker].append(partition)
                    moved = True


def _by_topic(partitions: list[PartitionId]) -> dict[UUID, tuple[int, ...]]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(mine) for topic_id, mine in topics.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


Owners = Mapping[tuple[UUID, int], str]


def reconcile(
    member_id: str,
    current: StoredCurrent,
    target_epoch: int,
    target: Assignment,
    owners: Owners,
    owned: Assignment | None,
) -> StoredCurrent:
    """The next step. `owned` is what the member says it has now; None: it did not say."""
    if current.state is MemberState.STABLE and current.member_epoch == target_epoch:
        return current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(
        owned, current.pending_revocation
    ):
        return current
    return _next_step(member_id, current, target_epoch, target, owners, owned)


def _still_owns(owned: Assignment | None, revoked: Owned) -> bool:
    if owned is None:
        return True
    return any(
        partition in revoked.get(topic_id, ())
        for topic_id, partitions in owned.items()
        for partition in partitions
    )


def _next_step(
    member_id: str,
    current: StoredCurrent,
    target_epoch: int,
    target: Assignment,
    owners: Owners,
    owned: Assignment | None,
) -> StoredCurrent:
    retained: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        targeted = frozenset(target.get(topic_id, ()))
        for partition, since in epochs.items():
            owned_by_topic = retained if partition in targeted else revoked
            owned_by_topic.setdefault(topic_id, {})[partition] = since
    if revoked and _still_owns(owned, revoked):
        return current._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=retained, pending_revocation=revoked
        )
    is_waiting = False
    for topic_id, partitions in target.items():
        mine = current.assigned.get(topic_id, {})
        for partition in partitions:
            if partition in mine:
                continue
            if owners.get((topic_id, partition), member_id) != member_id:
                is_waiting = True
                continue
            retained.setdefault(topic_id, {})[partition] = target_epoch
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    previous = current.previous_member_epoch
    if current.member_epoch != target_epoch:
        previous = current.member_epoch
    return StoredCurrent(target_epoch, previous, state, _in_order(retained), {})


def _in_order(owned: dict[UUID, dict[int, int]]) -> dict[UUID, dict[int, int]]:
    return {topic_id: dict(sorted(epochs.items())) for topic_id, epochs in owned.items()}
