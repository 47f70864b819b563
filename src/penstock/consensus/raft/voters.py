"""Who votes: one set of voters, and the sets that a log has held.

A voter is one disk of one node. A node whose disk was wiped comes back under another key and has no
vote until it is added. No rule about when a set may change is here; see `voter_changes`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from penstock.model import NO_OFFSET, NodeId, Offset

NO_DIRECTORY: Final = UUID(int=0)


class ReplicaKey(NamedTuple):
    """One disk of one node."""

    node_id: NodeId
    directory_id: UUID = NO_DIRECTORY


class VoterEndpoint(NamedTuple):
    """Where a listener of a voter accepts connections."""

    listener: str
    host: str
    port: int


class Voter(NamedTuple):
    """A member of a voter set. Its directory is unknown until it has joined a first quorum."""

    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()


class VoterSet:
    """The voters of a quorum, by node id. Immutable."""

    __slots__ = ("_by_id", "majority", "voters")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self.voters: tuple[Voter, ...] = tuple(sorted(voters, key=lambda voter: voter.key.node_id))
        self._by_id = {voter.key.node_id: voter for voter in self.voters}
        assert len(self._by_id) == len(self.voters), "a node votes once"
        self.majority: int = len(self.voters) // 2 + 1

    def __contains__(self, key: ReplicaKey) -> bool:
        """Whether this disk votes; a set that knows no directory of a node accepts any."""
        voter = self._by_id.get(key.node_id)
        return voter is not None and voter.key.directory_id in (key.directory_id, NO_DIRECTORY)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(node_id) for node_id in self._by_id)})"

    def find(self, node_id: NodeId) -> Voter | None:
        """The voter of this node."""
        return self._by_id.get(node_id)

    def others(self, node_id: NodeId) -> list[Voter]:
        """Every voter except this node's."""
        return [voter for voter in self.voters if voter.key.node_id != node_id]

    def with_voter(self, added: Voter) -> "VoterSet":
        """This set with a voter added, or replaced if its node is in it."""
        return VoterSet((*self.others(added.key.node_id), added))

    def without_node(self, node_id: NodeId) -> "VoterSet":
        """This set without one node."""
        return VoterSet(self.others(node_id))


class VoterHistory:
    """The voter sets of one log by offset; the last one counts, committed or not.

    The first entry is the set that the node was started with, or that of its snapshot.
    """

    __slots__ = ("_entries",)

    def __init__(self, voter_sets: Iterable[tuple[Offset, VoterSet]]) -> None:
        self._entries = list(voter_sets) or [(NO_OFFSET, VoterSet())]

    @property
    def latest(self) -> VoterSet:
        return self._entries[-1][1]

    @property
    def latest_offset(self) -> Offset:
        """Of the record that holds the latest set; NO_OFFSET if it is in no record."""
        return self._entries[-1][0]

    def was_voter(self, key: ReplicaKey) -> bool:
        """Whether the set before the latest one had this voter."""
        return len(self._entries) > 1 and key in self._entries[-2][1]

    def at(self, end_offset: Offset) -> VoterSet:
        """The set of a log that ends here, as a snapshot must store it."""
        offset, voters = next(row for row in reversed(self._entries) if row[0] < end_offset)
        assert offset != NO_OFFSET, "a snapshot is taken behind the first set that is in the log"
        return voters

    def append(self, offset: Offset, voters: VoterSet) -> None:
        """A record with a new set was appended."""
        assert offset > self.latest_offset, "records are appended in order"
        self._entries.append((offset, voters))

    def truncate_to(self, end_offset: Offset) -> None:
        """The log was cut: the sets behind the cut have never counted."""
        while self._entries[-1][0] >= end_offset:
            self._entries.pop()

    def drop_before(self, start_offset: Offset) -> None:
        """Keep what a log that starts here needs: the set at its start, and later ones."""
        while len(self._entries) > 1 and self._entries[1][0] < start_offset:
            del self._entries[0]

    def replace(self, end_offset: Offset, voters: VoterSet) -> None:
        """The whole log was replaced by a snapshot that ends here."""
        self._entries = [(Offset(end_offset - 1), voters)]
