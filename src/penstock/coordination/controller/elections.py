"""Who leads a partition, who is in sync, who may be elected without loss: changes of one row.

`isr` holds everything committed. While fewer than `min.insync.replicas` are in sync nothing more is
committed, so replicas that leave then stay eligible (`elr`): they hold everything committed too. A
replica that may have lost unsynced records leaves both sets; `last_known_elr` remembers it for the
case that no other is left, and until it proves that it lost none. A replica outside `isr` and `elr`
is elected only by an unclean election, and one whose log cannot be used (`offline`) not at all.

Each function returns the row itself when nothing changes; otherwise a row with a higher epoch.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

from penstock.coordination.controller.events import NO_LEADER, PartitionState
from penstock.model import LeaderEpoch, NodeId

IsActive: TypeAlias = Callable[[NodeId], bool]  # registered, unfenced and not stopping


class ElectionRules(NamedTuple):
    """What a topic's settings say about its partitions."""

    min_insync: int
    allows_unclean: bool


ReplicaChange: TypeAlias = Callable[
    [PartitionState, NodeId, IsActive, ElectionRules], PartitionState
]


def without_replica(
    row: PartitionState, node_id: NodeId, is_active: IsActive, rules: ElectionRules
) -> PartitionState:
    """A broker was fenced or stops: it leaves the in-sync set and leads no more.

    A partition without other replicas stays as it is: no other broker could ever lead it.
    """
    if row.replicas == (node_id,) or (node_id not in row.isr and row.leader != node_id):
        return row
    isr = tuple(node for node in row.isr if node != node_id)
    return _changed(row, _with_leader(_with_isr(row, isr, rules), is_active, rules))


def without_unclean_replica(
    row: PartitionState, node_id: NodeId, is_active: IsActive, rules: ElectionRules
) -> PartitionState:
    """A broker restarted and may have lost records that it had acknowledged.

    The only replica leads in a new epoch, so that clients can find out what was lost.
    """
    if row.replicas == (node_id,):
        return _with_new_epoch(row) if row.leader == node_id else row
    if node_id not in row.isr and node_id not in row.elr and row.leader != node_id:
        return row
    isr = tuple(node for node in row.isr if node != node_id)
    after = _with_isr(row, isr, rules, lost=(node_id,))
    return _changed(row, _with_leader(after, is_active, rules))


def without_lost_replica(
    row: PartitionState, node_id: NodeId, is_active: IsActive, rules: ElectionRules
) -> PartitionState:
    """A broker has another log directory, or will not come back: all its records are lost."""
    if row.replicas == (node_id,):
        return without_unclean_replica(row, node_id, is_active, rules)
    if node_id not in {*row.isr, *row.elr, *row.last_known_elr, row.leader}:
        return row
    isr = tuple(node for node in row.isr if node != node_id)
    after = _without_records(row, isr, node_id, rules)
    return _changed(row, _with_leader(after, is_active, rules))


def with_new_process(
    row: PartitionState,
    node_id: NodeId,
    is_active: IsActive,
    rules: ElectionRules,
    *,
    without: ReplicaChange,
) -> PartitionState:
    """A broker's new process opens its logs again, `without` it until they are in sync."""
    if node_id in row.offline:
        offline = tuple(node for node in row.offline if node != node_id)
        row = _changed(row, row._replace(offline=offline))
    return without(row, node_id, is_active, rules)


def without_log(
    row: PartitionState, node_id: NodeId, is_active: IsActive, rules: ElectionRules
) -> PartitionState | None:
    """A replica's log cannot be used. None: it is needed, for no other replica can lead.

    A new leader epoch makes the leader forget how far the replica was.
    """
    offline = tuple(node for node in row.replicas if node in row.offline or node == node_id)
    isr = tuple(node for node in row.isr if node != node_id)
    after = _with_leader(_with_isr(row._replace(offline=offline), isr, rules), is_active, rules)
    if node_id in row.isr and not _is_lossless(row, after):
        return None
    return row if after == row else _with_new_epoch(after)


def without_records(
    row: PartitionState, node_id: NodeId, is_active: IsActive, rules: ElectionRules
) -> PartitionState | None:
    """A replica is to start again with an empty log. None: its records are needed.

    A new leader epoch makes the leader forget how far the replica was.
    """
    isr = tuple(node for node in row.isr if node != node_id)
    offline = tuple(node for node in row.offline if node != node_id)
    after = _without_records(row, isr, node_id, rules)._replace(offline=(*offline, node_id))
    after = _with_leader(after, is_active, rules)
    if not _is_lossless(row, after):
        return None
    return _with_new_epoch(after._replace(offline=offline))


def with_log(
    row: PartitionState,
    node_id: NodeId,
    is_active: IsActive,
    rules: ElectionRules,
    *,
    is_complete: bool,
) -> PartitionState:
    """A replica's log can be used again; a complete one holds all that the replica acknowledged."""
    after = row._replace(offline=tuple(node for node in row.offline if node != node_id))
    if is_complete and node_id in row.last_known_elr:
        eligible = {*row.elr, node_id}
        after = after._replace(
            elr=tuple(node for node in row.replicas if node in eligible),
            last_known_elr=tuple(node for node in row.last_known_elr if node != node_id),
        )
    if after.leader == NO_LEADER:
        after = _with_leader(after, is_active, rules)
    return _changed(row, after)


def under_rules(row: PartitionState, rules: ElectionRules) -> PartitionState:
    """The topic's settings changed. Where enough are in sync now, others fall behind."""
    if row.leader == NO_LEADER or not (row.elr or row.last_known_elr):
        return row
    return _changed(row, _with_isr(row, row.isr, rules))


def with_leader(row: PartitionState, is_active: IsActive, rules: ElectionRules) -> PartitionState:
    """A broker became active: elect a leader where there is none."""
    return row if row.leader != NO_LEADER else _changed(row, _with_leader(row, is_active, rules))


def led_by(row: PartitionState, node_id: NodeId) -> PartitionState:
    """An in-sync replica leads in place of the current leader."""
    assert node_id in row.isr
    return _changed(row, row._replace(leader=node_id))


def elected_uncleanly(row: PartitionState, active: Sequence[NodeId]) -> PartitionState:
    """A replica that may lack committed records leads: what it lacks is lost."""
    return _changed(row, _uncleanly(row, active))


def with_isr(
    row: PartitionState, isr: Collection[NodeId], rules: ElectionRules, *, is_recovering: bool
) -> PartitionState:
    """The leader proposed an in-sync set that the controller accepts. The leader epoch stays."""
    ordered = tuple(node for node in row.replicas if node in isr)
    offline = tuple(node for node in row.offline if node not in isr)  # it fetched: its log is well
    after = _with_isr(row, ordered, rules)._replace(is_recovering=is_recovering, offline=offline)
    return _changed(row, after)


# Rows without their epochs.


def _with_isr(
    row: PartitionState,
    isr: tuple[NodeId, ...],
    rules: ElectionRules,
    *,
    lost: Collection[NodeId] = (),
) -> PartitionState:
    """Those who leave stay eligible while too few are in sync, unless they lost records."""
    if len(isr) >= min(rules.min_insync, len(row.replicas)):
        return row._replace(isr=isr, elr=(), last_known_elr=())
    eligible = {*row.isr, *row.elr} - set(isr)
    remembered = ({*row.last_known_elr} | (eligible & set(lost))) - set(isr)
    return row._replace(
        isr=isr,
        elr=tuple(node for node in row.replicas if node in eligible and node not in lost),
        last_known_elr=tuple(node for node in row.replicas if node in remembered),
    )


def _without_records(
    row: PartitionState, isr: tuple[NodeId, ...], node_id: NodeId, rules: ElectionRules
) -> PartitionState:
    """As `_with_isr`, and the replica has none of the records: nothing is expected of it."""
    after = _with_isr(row, isr, rules, lost=(node_id,))
    remembered = tuple(node for node in after.last_known_elr if node != node_id)
    return after._replace(last_known_elr=remembered)


def _with_leader(row: PartitionState, is_active: IsActive, rules: ElectionRules) -> PartitionState:
    """Keep the leader if it can go on; else the first replica that can lead without loss."""
    if row.leader in row.isr and is_active(row.leader):
        return row
    active = [node for node in row.replicas if is_active(node) and node not in row.offline]
    for node in active:
        if node in row.isr:
            return row._replace(leader=node)
    for node in active:
        if node in row.elr:
            return _with_isr(row, (*row.isr, node), rules)._replace(leader=node)
    if not row.isr and not row.elr and len(row.last_known_elr) == 1:
        (last,) = row.last_known_elr  # the last that had everything committed: none is better
        if last in active:
            return _uncleanly(row, active)
    if rules.allows_unclean and active:
        return _uncleanly(row, active)
    return row._replace(leader=NO_LEADER)


def _is_lossless(before: PartitionState, after: PartitionState) -> bool:
    """Whether the partition has a leader with all that is committed."""
    return after.leader != NO_LEADER and (before.is_recovering or not after.is_recovering)


def _uncleanly(row: PartitionState, active: Sequence[NodeId]) -> PartitionState:
    """Those that were complete last lack least."""
    leader = next((node for node in active if node in row.last_known_elr), active[0])
    return row._replace(leader=leader, isr=(leader,), elr=(), last_known_elr=(), is_recovering=True)


def _changed(before: PartitionState, after: PartitionState) -> PartitionState:
    """Count the change; another leader begins another leader epoch."""
    if after == before:
        return before
    if after.leader != before.leader:
        return _with_new_epoch(after)
    return after._replace(partition_epoch=after.partition_epoch + 1)


def _with_new_epoch(row: PartitionState) -> PartitionState:
    return row._replace(
        leader_epoch=LeaderEpoch(row.leader_epoch + 1), partition_epoch=row.partition_epoch + 1
    )
