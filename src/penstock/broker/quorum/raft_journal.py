"""The journal of the active controller: the metadata log, while this replica leads one epoch.

What is appended is committed for the controller's callers once it is committed by the quorum and
this broker has applied it: then a client that got a reply finds its change here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.errors import ErrorCode, Refused
from penstock.machine import Applies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.broker.metadata_follower import MetadataFollower
    from penstock.broker.quorum.quorum_node import QuorumNode
    from penstock.machine import JournalRecord, TransactionMark
    from penstock.machine.journal import OnCommitted
    from penstock.model import LeaderEpoch, Millis, Offset


class RaftJournal:
    """Implements `machine.OwnJournal`."""

    def __init__(self, quorum: QuorumNode, follower: MetadataFollower, epoch: LeaderEpoch) -> None:
        self._quorum = quorum
        self._follower = follower
        self._epoch = epoch

    @property
    def applies(self) -> Literal[Applies.ON_APPEND]:
        return Applies.ON_APPEND

    @property
    def end_offset(self) -> Offset:
        """Where the next record would go."""
        return self._quorum.log.end_offset

    @property
    def committed_offset(self) -> Offset:
        """Everything below is committed, and applied by this broker."""
        return self._follower.applied.offset

    def append(
        self,
        records: Sequence[JournalRecord],
        now: Millis,  # noqa: ARG002 - the quorum's own clock stamps the batch
        mark: TransactionMark | None = None,  # noqa: ARG002 - metadata has no transactions
    ) -> Offset:
        """Append all records as one batch; the offset to wait for."""
        if not self._quorum.is_leader or self._quorum.raft.epoch != self._epoch:
            raise Refused(ErrorCode.not_controller, "another controller is active; try again")
        return self._quorum.append(records, self._epoch)

    def call_when_committed(self, end_offset: Offset, call: OnCommitted) -> None:
        """Call once everything below is committed and applied."""
        self._follower.call_when_applied(end_offset, call)
