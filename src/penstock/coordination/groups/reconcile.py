"""One member of a consumer-protocol group on its way from what it has to what it shall have.

Revocation comes first: a member keeps its epoch until it has given back what it must; a partition
is handed on only when nobody owns it. So it never has two owners.
"""

from collections.abc import Mapping
from uuid import UUID

from penstock.coordination.groups.consumer_records import (
    Assignment,
    MemberState,
    Owned,
    StoredCurrent,
)

Owners = Mapping[tuple[UUID, int], str]


def reconcile(
    member_id: str,
    current: StoredCurrent,
    target_epoch: int,
    target: Assignment,
    owners: Owners,
    owned: Assignment | None,
) -> StoredCurrent:
    """The next step. `owned` is what the member says it has now; None says that it did not say."""
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
    kept: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        wanted = frozenset(target.get(topic_id, ()))
        for partition, since in epochs.items():
            part = kept if partition in wanted else revoked
            part.setdefault(topic_id, {})[partition] = since
    if revoked and _still_owns(owned, revoked):
        return current._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
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
            kept.setdefault(topic_id, {})[partition] = target_epoch
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    previous = current.previous_member_epoch
    if current.member_epoch != target_epoch:
        previous = current.member_epoch
    return StoredCurrent(target_epoch, previous, state, _in_order(kept), {})


def _in_order(owned: dict[UUID, dict[int, int]]) -> dict[UUID, dict[int, int]]:
    return {topic_id: dict(sorted(epochs.items())) for topic_id, epochs in owned.items()}
