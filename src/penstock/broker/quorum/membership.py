"""How a broker takes part in the metadata quorum: as a voter of it, or as an observer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.quorum.peers import QuorumPeers
from penstock.broker.quorum.quorum_node import QuorumNode
from penstock.broker.quorum.quorum_state_file import load_quorum_state
from penstock.consensus.raft import (
    QuorumState,
    RaftNode,
    RaftSettings,
    ReplicaKey,
    Voter,
    VoterEndpoint,
    VoterSet,
)
from penstock.model import NO_OFFSET, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from penstock.broker.broker import Endpoint
    from penstock.broker.broker_links import BrokerLinks
    from penstock.broker.quorum.metadata_log import MetadataLog
    from penstock.broker.quorum.ports import QuorumListener
    from penstock.link.settings import Address
    from penstock.model import Millis, Moment


class QuorumMembership(NamedTuple):
    """This broker, and the quorum that it was started with; what the log says wins."""

    endpoint: Endpoint
    listener: str
    directory_id: UUID
    voters: Sequence[tuple[NodeId, str, int]]  # node id, host, port; none: this broker alone
    bootstrap: Sequence[Address]  # of a quorum that it observes

    def own(self) -> Voter:
        """This broker as a voter."""
        key = ReplicaKey(self.endpoint.node_id, self.directory_id)
        listener = VoterEndpoint(self.listener, self.endpoint.host, self.endpoint.port)
        return Voter(key, (listener,))

    def configured_voters(self) -> VoterSet:
        """The voters of a log that has none yet."""
        if self.bootstrap:
            return VoterSet()
        if not self.voters:
            return VoterSet((self.own(),))
        return VoterSet(
            self.own()
            if node_id == self.endpoint.node_id
            else Voter(ReplicaKey(node_id), (VoterEndpoint(self.listener, host, port),))
            for node_id, host, port in self.voters
        )


def start_quorum(
    membership: QuorumMembership,
    log: MetadataLog,
    links: BrokerLinks,
    listener: QuorumListener,
    *,
    clock: Callable[[], Moment],
    cluster_id: Callable[[], str | None],
    jitter: Callable[[int], Millis],
    settings: RaftSettings | None = None,
) -> QuorumNode:
    """This broker's replica, ready to start."""
    raft_settings = RaftSettings() if settings is None else settings
    raft = RaftNode(
        membership.own(),
        log,
        load_quorum_state(log.folder) or QuorumState(),
        log.voter_sets() or [(NO_OFFSET, membership.configured_voters())],
        raft_settings,
        lambda: jitter(raft_settings.election_jitter_max_ms),
    )
    peers = QuorumPeers(links, lambda: raft.voters, membership.bootstrap, cluster_id)
    return QuorumNode(raft, log, log.folder, peers, listener, clock)
