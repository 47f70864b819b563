"""What a replica of the quorum needs from its broker: connections, and a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.consensus.raft import OffsetAndEpoch, Reply, Request, RoleChange
    from penstock.model import NodeId, Offset


class Peers(Protocol):
    """Connections to other replicas."""

    def send(
        self,
        node_id: NodeId | None,
        request: Request,
        on_reply: Callable[[Reply], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Send to a node, or to any bootstrap server; one of the two is called, at most once."""

    def close(self) -> None:
        """End all connections; nothing is called any more."""


class QuorumListener(Protocol):
    """What the broker does with the state of the quorum."""

    def on_role(self, change: RoleChange) -> None:
        """The leader is another one, or this replica became or ceased to be it."""

    def on_committed(self, high_watermark: Offset) -> None:
        """Everything below is committed."""

    def on_snapshot_installed(self, snapshot: OffsetAndEpoch) -> None:
        """The log was replaced by a snapshot: what was applied from it is void."""

    def on_fault(self, reason: str) -> None:
        """This replica cannot go on."""

    def on_full_disk(self, *, is_full: bool) -> None:
        """This replica waits for space on its disk; or it goes on."""
