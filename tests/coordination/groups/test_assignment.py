"""The broker's assignors: complete, disjoint, balanced, with as few moves as possible."""

from collections import Counter
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordination.groups.assignment import Subscriber, assign_range, assign_uniform

TOPICS = [UUID(int=number) for number in range(1, 5)]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
member_counts = st.integers(1, 9)
subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=8)


def members(topics: list[frozenset[UUID]]) -> list[Subscriber]:
    return [Subscriber(f"m{number}", None, names, {}) for number, names in enumerate(topics)]


def owners(parts: dict[str, dict[UUID, tuple[int, ...]]]) -> dict[tuple[UUID, int], str]:
    """The owner of each partition; there is only one."""
    assigned: dict[tuple[UUID, int], str] = {}
    for member_id, topics in parts.items():
        for topic_id, partitions in topics.items():
            for partition in partitions:
                assert assigned.setdefault((topic_id, partition), member_id) == member_id
    return assigned


def again(
    subscribers: list[Subscriber], parts: dict[str, dict[UUID, tuple[int, ...]]]
) -> list[Subscriber]:
    """The same members, each with what it was assigned."""
    return [s._replace(previous=parts.get(s.member_id, {})) for s in subscribers]


@given(subscriptions, counts)
@settings(deadline=None, max_examples=200)
def test_every_subscribed_partition_is_assigned_to_one_subscriber(
    topics: list[frozenset[UUID]], sizes: dict[UUID, int]
) -> None:
    subscribers = members(topics)
    topic_ids = frozenset().union(*topics)
    expected = {(t, p) for t in topic_ids & sizes.keys() for p in range(sizes[t])}
    for assign in (assign_uniform, assign_range):
        assigned = owners(assign(subscribers, sizes))
        assert assigned.keys() == expected
        for (topic_id, _), member_id in assigned.items():
            assert topic_id in subscribers[int(member_id[1:])].topics


@given(member_counts, member_counts, counts)
@settings(deadline=None, max_examples=200)
def test_uniform_is_balanced_and_moves_as_little_as_possible(
    before: int, after: int, sizes: dict[UUID, int]
) -> None:
    topic_ids = frozenset(sizes)
    first = assign_uniform(members([topic_ids] * before), sizes)
    second = assign_uniform(again(members([topic_ids] * after), first), sizes)
    total = sum(sizes.values())
    loads = Counter(owners(second).values())
    assert all(loads[f"m{n}"] - total // after in (0, 1) for n in range(after))
    minimum, extras = divmod(total, after)
    retained = sum(owners(second)[where] == member for where, member in owners(first).items())
    had = sorted(len([1 for m in owners(first).values() if m == f"m{n}"]) for n in range(after))
    quotas = [minimum + 1] * extras + [minimum] * (after - extras)
    assert retained == sum(map(min, reversed(had), quotas))


@given(subscriptions, counts)
@settings(deadline=None, max_examples=200)
def test_uniform_is_stable(topics: list[frozenset[UUID]], sizes: dict[UUID, int]) -> None:
    subscribers = members(topics)
    parts = assign_uniform(subscribers, sizes)
    assert assign_uniform(again(subscribers, parts), sizes) == parts


@given(subscriptions, counts)
@settings(deadline=None, max_examples=200)
def test_uniform_leaves_no_member_two_ahead_of_another_subscriber(
    topics: list[frozenset[UUID]], sizes: dict[UUID, int]
) -> None:
    subscribers = members(topics)
    assigned = owners(assign_uniform(subscribers, sizes))
    loads = Counter(assigned.values())
    for (topic_id, _), member_id in assigned.items():
        takers = [s.member_id for s in subscribers if topic_id in s.topics]
        assert loads[member_id] - min(loads[taker] for taker in takers) <= 1


def test_range_assigns_the_same_range_of_topics_of_one_size() -> None:
    sizes = {TOPICS[0]: 5, TOPICS[1]: 5}
    parts = assign_range(members([frozenset(sizes)] * 2), sizes)
    assert parts == {
        "m0": {TOPICS[0]: (0, 1, 2), TOPICS[1]: (0, 1, 2)},
        "m1": {TOPICS[0]: (3, 4), TOPICS[1]: (3, 4)},
    }
