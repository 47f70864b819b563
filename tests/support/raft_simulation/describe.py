"""Messages, effects and hosts in the words of case files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.consensus.raft import (
    BeginQuorumEpoch,
    Effects,
    EndQuorumEpoch,
    EpochReply,
    LeaderChange,
    OffsetAndEpoch,
    QuorumFetch,
    QuorumFetchReply,
    Reply,
    Request,
    Role,
    SnapshotFetch,
    SnapshotFetchReply,
    UpdateVoter,
    Vote,
    VoteReply,
    VoterSet,
)
from penstock.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.raft_simulation.host import Host


def describe(message: Request | Reply) -> str:
    """A message in one line."""
    match message:
        case Vote():
            kind = "pre-vote" if message.is_pre_vote else "vote"
            return f"{kind} epoch={message.epoch} log={_position(message.log_end)}"
        case BeginQuorumEpoch():
            return f"begin epoch={message.epoch}"
        case EndQuorumEpoch():
            successors = ",".join(str(key.node_id) for key in message.successors)
            return f"end epoch={message.epoch} successors={successors}"
        case UpdateVoter():
            return f"update voter epoch={message.epoch}"
        case QuorumFetch():
            return f"fetch epoch={message.epoch} at={_position(message.position)}"
        case SnapshotFetch():
            return f"fetch snapshot={_position(message.snapshot)} at byte {message.position}"
        case _:
            return _describe_reply(message)


def _describe_reply(reply: Reply) -> str:
    known = f"epoch={reply.epoch}" + (f" leader={reply.leader_id}" if reply.leader_id else "")
    if reply.error is not ErrorCode.none:
        return f"{reply.error.name} {known}"
    match reply:
        case VoteReply():
            return f"{'granted' if reply.is_granted else 'refused'} {known}"
        case EpochReply():
            return f"ok {known}"
        case SnapshotFetchReply():
            return f"bytes {reply.position} to {reply.position + len(reply.chunk)} {known}"
        case QuorumFetchReply(diverging=end) if end is not None:
            return f"diverging={_position(end)} {known}"
        case QuorumFetchReply(snapshot=end) if end is not None:
            return f"snapshot={_position(end)} {known}"
    count = len(reply.records[1]) if isinstance(reply.records, tuple) else 0
    return f"records={count} high_watermark={reply.high_watermark} {known}"


def headlines(host: Host, effects: Effects) -> Iterator[str]:
    """What matters of a step's effects."""
    node_id = host.voter.key.node_id
    if effects.truncate_to is not None:
        yield f"{node_id} cuts its log to {effects.truncate_to}"
    if effects.install_snapshot is not None:
        yield f"{node_id} installs snapshot {_position(effects.install_snapshot)}"
    if (role := effects.role) is not None:
        leader = f" of {role.leader_id}" if role.role is Role.FOLLOWER else ""
        start = "" if role.start_offset is None else f" from {role.start_offset}"
        yield f"{node_id} is {role.role.value}{leader} in epoch {role.epoch}{start}"
    for record in effects.append_control:
        if not isinstance(record, LeaderChange):
            yield f"{node_id} appends voters {_ids(record.voters)}"
    if effects.high_watermark is not None:
        yield f"{node_id} has committed {effects.high_watermark}"


def status(host: Host) -> str:
    """A host in one line."""
    node, disk = host.node, host.disk
    log = f"log {disk.start_offset}..{disk.end_offset} synced {disk.synced_offset}"
    epochs = " ".join(f"{epoch}@{start}" for epoch, start in disk.epoch_starts)
    if node is None:
        return f"{host.voter.key.node_id} down, {log}, epochs {epochs or 'none'}"
    leader = f" of {node.leader_id}" if node.role is Role.FOLLOWER else ""
    return (
        f"{host.voter.key.node_id} {node.role.value}{leader} epoch {node.epoch}, {log}, "
        f"epochs {epochs or 'none'}, high watermark {node.high_watermark}, "
        f"voters {_ids(node.voters)}"
    )


def _position(position: OffsetAndEpoch) -> str:
    return f"{position.offset}@{position.epoch}"


def _ids(voters: VoterSet) -> str:
    """A voter whose disk is not known is marked with a question mark."""
    return (
        ",".join(
            f"{voter.key.node_id}{'' if voter.key.directory_id.int else '?'}"
            for voter in voters.voters
        )
        or "none"
    )
