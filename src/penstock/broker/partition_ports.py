"""What a partition notifies, and what it asks to be flushed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.broker.partition import Partition
    from penstock.model import Millis


class Poll(Protocol):
    """A fetch that waits for more to read from some partitions."""

    def on_readable(self, partition: Partition, size_bytes: int) -> None:
        """This many more bytes may be read from the partition."""

    def on_unavailable(self) -> None:
        """A partition was deleted or has another leader: respond with what there is."""


class MarkerWatcher(Protocol):
    """A write that waits until its transaction is verified."""

    is_stale: bool  # a marker ended the transaction since the coordinator was asked


class FollowerListener(Protocol):
    """A follower's fetch session, notified about one partition that this broker leads."""

    def on_appended(self) -> None:
        """There is more to fetch."""

    def on_high_watermark(self) -> None:
        """The follower does not know the high watermark yet."""

    def on_start_moved(self) -> None:
        """Records were deleted at the log's start: the follower is to delete them too."""

    def on_unavailable(self) -> None:
        """The partition was deleted, or has another leader or leader epoch."""


class ReplicaHealth(Protocol):
    """Acts on a replica whose log cannot be used any more."""

    def on_failed(self, partition: Partition) -> None:
        """Its disk refuses: nothing more is written here until a restart."""

    def on_full(self, partition: Partition) -> None:
        """Its disk has no space."""

    def on_damaged(self, partition: Partition, reason: str) -> None:
        """Its log lacks or has altered what was written."""


class FlushPort(Protocol):
    """Syncs logs to disk, off the event loop."""

    def request(self, partition: Partition) -> None:
        """Sync what the log has now; then call `on_flushed` or `on_flush_failed`."""

    def request_within(self, partition: Partition, wait_ms: Millis) -> None:
        """Sync after this long at the latest."""
