"""The owner of a partition follows from the assignments of members, in any order of records."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordination.groups.apply import apply_event
from penstock.coordination.groups.codec_consumer import MemberState, StoredCurrent
from penstock.coordination.groups.events import CurrentAssignmentSet, GroupEpochSet
from penstock.coordination.groups.state import ConsumerGroup, GroupsState

TOPIC_ID = UUID(int=1)
PARTITIONS = st.sets(st.integers(0, 3))


def current(assigned: set[int], revoked: set[int]) -> StoredCurrent:
    return StoredCurrent(
        1,
        0,
        MemberState.STABLE,
        {TOPIC_ID: dict.fromkeys(sorted(assigned), 1)},
        {TOPIC_ID: dict.fromkeys(sorted(revoked - assigned), 1)},
    )


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.one_of(st.none(), st.builds(current, PARTITIONS, PARTITIONS)),
        ),
        max_size=12,
    )
)
def test_a_partition_belongs_to_the_last_member_that_was_assigned_it(
    changes: list[tuple[str, StoredCurrent | None]],
) -> None:
    """A late record of a former owner changes nothing for the present one."""
    state = GroupsState()
    apply_event(state, GroupEpochSet("g", 1))
    group = state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    takers: dict[int, str] = {}
    for member_id, now in changes:
        apply_event(state, CurrentAssignmentSet("g", member_id, now))
        held: set[int] = set()
        if now is not None:
            held = {*now.assigned[TOPIC_ID], *now.pending_revocation[TOPIC_ID]}
        takers = {p: owner for p, owner in takers.items() if owner != member_id or p in held}
        takers.update(dict.fromkeys(held, member_id))
        assert {partition: owner for (_, partition), owner in group.owners.items()} == takers
