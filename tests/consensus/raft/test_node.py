"""What a node does with messages that no correct replica sends, and where its limits are."""

from uuid import UUID

import pytest

from penstock.consensus.raft import (
    AddVoter,
    BeginQuorumEpoch,
    Effects,
    EndQuorumEpoch,
    EpochReply,
    OffsetAndEpoch,
    QuorumFetch,
    QuorumFetchReply,
    QuorumState,
    RaftNode,
    RaftSettings,
    ReplicaKey,
    Reply,
    Request,
    Role,
    SnapshotFetch,
    SnapshotFetchReply,
    SyncPoint,
    UpdateVoter,
    Vote,
    Voter,
    VoteReply,
    VoterSet,
    VotersRecord,
)
from penstock.consensus.raft.replica import HELD_MAX
from penstock.errors import ErrorCode, Refused
from penstock.machine import CallerId
from penstock.model import NO_OFFSET, LeaderEpoch, Millis, NodeId, Offset
from tests.support.raft_simulation.disk import Disk

NOW = Millis(5_000)
CALLER = CallerId(1)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(NodeId(node_id), UUID(int=abs(node_id)))


def position(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), LeaderEpoch(epoch))


def epoch(number: int) -> LeaderEpoch:
    return LeaderEpoch(number)


def make_node(
    *epochs: int,
    state: QuorumState = QuorumState(),  # noqa: B008  # immutable
    voters: tuple[int, ...] = (1, 2, 3),
    settings: RaftSettings | None = None,
) -> RaftNode:
    """Node 1, started, with one record per epoch given in its log."""
    disk = Disk()
    disk.append([(LeaderEpoch(epoch), "record") for epoch in epochs])
    members = VoterSet(Voter(key(node_id)) for node_id in voters)
    node = RaftNode(
        Voter(key(1)),
        disk,
        state,
        [(NO_OFFSET, members)],
        settings or RaftSettings(),
        lambda: Millis(0),
    )
    node.start(NOW)
    return node


def make_leader(settings: RaftSettings | None = None) -> RaftNode:
    """Node 1 leads epoch 1; its two first records are appended and synced."""
    node = make_node(settings=settings)
    node.on_tick(Millis(NOW + 300))
    effects = elect(node)
    disk = log_of(node)
    voter_sets = disk.append(
        [
            (epoch(1), record.voters if isinstance(record, VotersRecord) else "leader")
            for record in effects.append_control
        ]
    )
    node.on_appended(NOW, voter_sets)
    node.on_synced(node.sync_point(), NOW)
    node.on_state_saved(QuorumState(epoch(1), NodeId(1), key(1)), NOW)
    return node


def elect(node: RaftNode) -> Effects:
    """Node 2 votes for node 1, which stands in epoch 1."""
    pre_vote = Vote(epoch(0), key(1), key(2), position(0, 0), True)
    node.on_reply(NodeId(2), pre_vote, VoteReply(ErrorCode.none, epoch(0), None, True), NOW)
    node.on_state_saved(QuorumState(epoch(1), None, key(1)), NOW)
    vote = pre_vote._replace(epoch=epoch(1), is_pre_vote=False)
    effects = node.on_reply(NodeId(2), vote, VoteReply(ErrorCode.none, epoch(1), None, True), NOW)
    assert node.role is Role.LEADER
    return effects


def log_of(node: RaftNode) -> Disk:
    disk = node._replica.log  # noqa: SLF001  # the test's own log
    assert isinstance(disk, Disk)
    return disk


def error_of(effects: Effects) -> ErrorCode:
    """Of the only reply; nothing else may have happened."""
    ((caller, reply),) = effects.replies
    assert caller == CALLER
    assert effects == Effects(replies=effects.replies)
    return reply.error


def fetch(node_id: int, offset: int, epoch_number: int, *, at_epoch: int = 1) -> QuorumFetch:
    return QuorumFetch(epoch(at_epoch), key(node_id), position(offset, epoch_number), Millis(200))


@pytest.mark.parametrize(
    "request_",
    [
        Vote(epoch(-1), key(2), key(1), position(0, 0), False),
        Vote(epoch(1), key(1), key(1), position(0, 0), False),
        Vote(epoch(1), key(2), key(1), position(-1, 0), False),
        Vote(epoch(1), key(2), key(1), position(0, -1), True),
        BeginQuorumEpoch(epoch(1), NodeId(1), key(1)),
        BeginQuorumEpoch(epoch(1), NodeId(-1), key(1)),
        BeginQuorumEpoch(epoch(-2), NodeId(2), key(1)),
        EndQuorumEpoch(epoch(1), NodeId(1), ()),
        QuorumFetch(epoch(0), key(1), position(0, 0), Millis(0)),
        QuorumFetch(epoch(0), key(-1), position(0, 0), Millis(0)),
        QuorumFetch(epoch(0), key(2), position(-1, 0), Millis(0)),
        QuorumFetch(epoch(0), key(2), position(0, -1), Millis(0)),
        SnapshotFetch(epoch(0), key(2), position(0, 0), -1),
        SnapshotFetch(epoch(0), key(1), position(0, 0), 0),
        UpdateVoter(epoch(0), Voter(key(1))),
    ],
    ids=repr,
)
def test_an_invalid_request_is_refused_and_changes_nothing(request_: Request) -> None:
    node = make_node()
    assert error_of(node.on_request(request_, CALLER, NOW)) is ErrorCode.invalid_request
    assert (node.role, node.epoch) == (Role.UNATTACHED, 0)


def test_a_vote_for_another_disk_is_refused() -> None:
    node = make_node()
    wiped = ReplicaKey(NodeId(1), UUID(int=99))
    vote = Vote(epoch(1), key(2), wiped, position(0, 0), False)
    assert error_of(node.on_request(vote, CALLER, NOW)) is ErrorCode.invalid_voter_key
    begin = BeginQuorumEpoch(epoch(1), NodeId(2), wiped)
    assert error_of(node.on_request(begin, CALLER, NOW)) is ErrorCode.invalid_voter_key
    assert node.epoch == 0


def test_a_second_leader_of_an_epoch_is_refused() -> None:
    node = make_node(state=QuorumState(epoch(3), NodeId(2)))
    begin = BeginQuorumEpoch(epoch(3), NodeId(3), key(1))
    assert error_of(node.on_request(begin, CALLER, NOW)) is ErrorCode.invalid_request
    end = EndQuorumEpoch(epoch(3), NodeId(3), (key(1),))
    assert error_of(node.on_request(end, CALLER, NOW)) is ErrorCode.invalid_request
    assert (node.role, node.leader_id) == (Role.FOLLOWER, 2)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch(2, 0, 0, at_epoch=0), ErrorCode.fenced_leader_epoch),
        (fetch(2, 0, 0, at_epoch=2), ErrorCode.unknown_leader_epoch),
        (SnapshotFetch(epoch(0), key(2), position(1, 1), 0), ErrorCode.fenced_leader_epoch),
        (UpdateVoter(epoch(0), Voter(key(2))), ErrorCode.fenced_leader_epoch),
        (UpdateVoter(epoch(1), Voter(key(4))), ErrorCode.request_timed_out),
        (EndQuorumEpoch(epoch(0), NodeId(2), ()), ErrorCode.fenced_leader_epoch),
        (BeginQuorumEpoch(epoch(0), NodeId(2), key(1)), ErrorCode.fenced_leader_epoch),
        (Vote(epoch(0), key(2), key(1), position(9, 9), True), ErrorCode.fenced_leader_epoch),
    ],
    ids=repr,
)
def test_a_leader_refuses_what_is_not_of_its_epoch(request_: Request, error: ErrorCode) -> None:
    node = make_leader()
    assert error_of(node.on_request(request_, CALLER, NOW)) is error
    assert node.role is Role.LEADER


def test_replies_of_older_epochs_and_to_other_requests_are_ignored() -> None:
    node = make_leader()
    for reply in (
        QuorumFetchReply(ErrorCode.none, epoch(1), NodeId(2), Offset(9), position(0, 0)),
        QuorumFetchReply(ErrorCode.none, epoch(0), NodeId(3)),
        SnapshotFetchReply(ErrorCode.none, epoch(1), NodeId(1), 0, 3, b"abc"),
    ):
        assert node.on_reply(NodeId(2), fetch(1, 0, 0), reply, NOW) == Effects()
    assert (node.role, node.epoch) == (Role.LEADER, 1)


@pytest.mark.parametrize(
    "reply",
    [
        QuorumFetchReply(ErrorCode.none, epoch(3), NodeId(2), diverging=position(-5, 1)),
        QuorumFetchReply(ErrorCode.none, epoch(3), NodeId(2), diverging=position(2, 1)),
        QuorumFetchReply(ErrorCode.none, epoch(3), NodeId(2), snapshot=position(-1, 1)),
        QuorumFetchReply(ErrorCode.unknown_server_error, epoch(3), NodeId(2)),
        SnapshotFetchReply(ErrorCode.none, epoch(3), NodeId(2), 0, 3, b"abc"),
    ],
    ids=repr,
)
def test_a_reply_that_makes_no_sense_is_followed_by_the_same_fetch(reply: Reply) -> None:
    node = make_node(1, 1, state=QuorumState(epoch(3), NodeId(2)))
    (_, request) = make_request(node)
    assert node.on_reply(NodeId(2), request, reply, NOW) == Effects()
    assert (node.role, node.high_watermark) == (Role.FOLLOWER, 0)
    wake_at = node.wake_at()
    assert wake_at is not None
    if isinstance(reply, QuorumFetchReply):
        ((to, again),) = node.on_tick(wake_at).requests
        assert (to, again) == (2, request)


def make_request(node: RaftNode) -> tuple[NodeId | None, Request]:
    """What a follower repeats when its first fetch has no reply."""
    wake_at = node.wake_at()
    assert wake_at is not None
    ((to, request),) = node.on_tick(wake_at).requests
    return to, request


@pytest.mark.parametrize(
    "chunk",
    [
        SnapshotFetchReply(ErrorCode.none, epoch(3), NodeId(2), 1, 3, b"bc"),
        SnapshotFetchReply(ErrorCode.none, epoch(3), NodeId(2), 0, 3, b""),
        SnapshotFetchReply(ErrorCode.none, epoch(3), NodeId(2), 0, 2, b"abc"),
        SnapshotFetchReply(ErrorCode.position_out_of_range, epoch(3), NodeId(2)),
    ],
    ids=repr,
)
def test_a_chunk_that_does_not_fit_ends_the_download(chunk: SnapshotFetchReply) -> None:
    node = make_node(1, 1, state=QuorumState(epoch(3), NodeId(2)))
    (_, request) = make_request(node)
    offer = QuorumFetchReply(ErrorCode.none, epoch(3), NodeId(2), snapshot=position(9, 2))
    ((_, download),) = node.on_reply(NodeId(2), request, offer, NOW).requests
    assert node.on_reply(NodeId(2), download, chunk, NOW) == Effects()
    _, again = make_request(node)
    assert isinstance(again, QuorumFetch)


def test_a_sync_that_started_before_a_truncation_proves_nothing() -> None:
    node = make_node(1, 1, 1, state=QuorumState(epoch(3), NodeId(2)))
    before = node.sync_point()
    (_, request) = make_request(node)
    cut = QuorumFetchReply(ErrorCode.none, epoch(3), NodeId(2), diverging=position(1, 1))
    assert node.on_reply(NodeId(2), request, cut, NOW).truncate_to == 1
    log_of(node).truncate(Offset(1))
    node.on_truncated(NOW)
    log_of(node).append([(epoch(2), "other")])
    assert before == SyncPoint(Offset(3), 0)
    node.on_synced(before, NOW)
    assert node.snapshot_limit == 0
    assert node._replica.synced_offset == 1  # noqa: SLF001  # what a fetch would promise


def test_a_reply_that_waited_for_the_disk_serves_no_records_of_another_leader() -> None:
    node = make_node(voters=(1, 2))
    node.on_tick(Millis(NOW + 300))
    elect(node)
    disk = log_of(node)
    disk.append([(epoch(1), "leader")])
    node.on_appended(NOW)
    assert not node.on_request(fetch(2, 0, 0), CALLER, NOW).replies
    vote = Vote(epoch(2), key(2), key(1), position(0, 0), False)
    assert not node.on_request(vote, CallerId(2), NOW).replies
    effects = node.on_state_saved(QuorumState(epoch(2)), NOW)
    replies = dict(effects.replies)
    assert replies[CALLER] == QuorumFetchReply(ErrorCode.not_leader_or_follower, epoch(2), None)
    assert replies[CallerId(2)] == VoteReply(ErrorCode.none, epoch(2), None, False)


def test_requests_are_refused_before_memory_fills_while_the_disk_does_not_respond() -> None:
    node = make_node()
    for number in range(HELD_MAX):
        vote = Vote(epoch(number + 1), key(2), key(1), position(0, 0), False)
        assert not node.on_request(vote, CallerId(number), NOW).replies
    vote = Vote(epoch(9_999), key(2), key(1), position(0, 0), False)
    assert error_of(node.on_request(vote, CALLER, NOW)) is ErrorCode.request_timed_out
    effects = node.on_state_saved(QuorumState(epoch(HELD_MAX), None, key(2)), NOW)
    assert len(effects.replies) == HELD_MAX


def test_a_leader_serves_a_limited_number_of_observers() -> None:
    node = make_leader(RaftSettings(observers_max=2))
    for node_id in (10, 11):
        assert error_of(node.on_request(fetch(node_id, 2, 1), CALLER, NOW)) is ErrorCode.none
    refused = node.on_request(fetch(12, 2, 1), CALLER, Millis(NOW + 900))
    assert error_of(refused) is ErrorCode.request_timed_out
    node.on_request(fetch(11, 2, 1), CallerId(2), Millis(NOW + 900))
    node.on_request(fetch(2, 2, 1), CallerId(3), Millis(NOW + 900))
    node.on_request(fetch(12, 2, 1), CallerId(4), Millis(NOW + 901))
    observers = [row.key.node_id for row in node.statuses(NOW) if not row.is_voter]
    assert observers == [11, 12]


def test_spans_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="200 < 100 <= 600 does not hold"):
        RaftSettings(request_timeout_ms=Millis(100))


def test_only_a_leader_knows_the_others() -> None:
    assert make_node().statuses(NOW) == ()
    assert [row.key.node_id for row in make_leader().statuses(NOW)] == [1, 2, 3]


def test_a_refused_change_of_the_voters_leaves_no_trace() -> None:
    node = make_leader()
    with pytest.raises(Refused) as refusal:
        node.propose_voters(AddVoter(Voter(key(4))), NOW)
    assert refusal.value.code is ErrorCode.request_timed_out
    assert node.on_tick(NOW) == Effects()


def test_a_node_with_a_log_of_a_later_epoch_than_its_state_takes_that() -> None:
    """A power crash may keep the log and lose the quorum state that was written before it."""
    assert make_node(1, 4).epoch == 4


def test_replies_to_a_resigned_leader_end_its_repetitions() -> None:
    node = make_leader()
    requests = node.resign(NOW).requests
    assert [to for to, _ in requests] == [2, 3]
    for to, request in requests:
        node.on_reply(to, request, EpochReply(ErrorCode.none, epoch(1), None), NOW)
    effects = node.on_tick(Millis(NOW + 400))
    assert effects == Effects()
