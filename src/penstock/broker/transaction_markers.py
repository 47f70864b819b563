"""Writing the outcome of transactions into their partitions, here and on other brokers.

A marker counts as written when it is committed, or when its partition no longer exists. Everything
else is left for another try, by the coordinator that wants the marker written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.broker.remote_transactions import SentMarker
from penstock.errors import ErrorCode, Refused
from penstock.model import NodeId
from penstock.protocol.control_records import Marker, build_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.broker.broker import ClusterView
    from penstock.broker.partition import Partition
    from penstock.broker.partition_waits import OnCommitted
    from penstock.broker.partitions import Partitions
    from penstock.broker.remote_transactions import RemoteTransactions
    from penstock.model import Millis, Moment, TopicPartition

logger: Final = logging.getLogger(__name__)


def write_marker(
    partition: Partition, marker: Marker, now: Millis, on_committed: OnCommitted
) -> None:
    """End a transaction in a partition led here, and call when the marker is committed.

    Refused, as any write with acks=all, while too few replicas are in sync.
    """
    if partition.is_leader:
        partition.check_min_insync()
    batch = build_marker(
        commit=marker.commit,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now,
    )
    appended = partition.append_marker(batch, marker, now=now)
    partition.call_when_committed(appended.end_offset, on_committed)


class MarkerWriter:
    """Brings a coordinator's markers to their partitions and reports those that have them."""

    def __init__(
        self,
        partitions: Partitions,
        cluster: ClusterView,
        clock: Callable[[], Moment],
        remote: RemoteTransactions,
    ) -> None:
        self._partitions = partitions
        self._cluster = cluster
        self._clock = clock
        self._remote = remote
        # Appended and not committed yet: a coordinator that asks again must not append again
        self._uncommitted: set[tuple[TopicPartition, Marker]] = set()
        self._logged: set[TopicPartition] = set()  # one line per partition until it works again

    def write(
        self,
        marker: Marker,
        targets: Iterable[TopicPartition],
        report: Callable[[frozenset[TopicPartition]], None],
    ) -> None:
        """Try every target once; `report` is called for those that are done, now or later."""
        now = self._clock().wall
        done: list[TopicPartition] = []
        is_first_report_due = True

        def on_done(target: TopicPartition) -> None:
            if is_first_report_due:
                done.append(target)
            else:
                report(frozenset((target,)))

        for target in targets:
            self._write_to(target, marker, now, on_done)
        is_first_report_due = False
        if done:
            report(frozenset(done))

    def _write_to(
        self,
        target: TopicPartition,
        marker: Marker,
        now: Millis,
        on_done: Callable[[TopicPartition], None],
    ) -> None:
        partition = self._partitions.find(*target)
        key = (target, marker)
        if partition is None and self._is_deleted(target):
            on_done(target)
            return
        if key in self._uncommitted:
            return
        if partition is None or not partition.is_leader:
            self._send_to_leader(key, on_done)
            return

        def on_committed(refusal: Refused | None) -> None:
            self._uncommitted.discard(key)
            if refusal is None:
                on_done(target)

        self._uncommitted.add(key)
        try:
            write_marker(partition, marker, now, on_committed)
        except (Refused, OSError) as error:
            self._uncommitted.discard(key)
            self._log_once(target, error)
            if isinstance(error, Refused) and error.code == ErrorCode.invalid_producer_epoch:
                on_done(target)  # a newer epoch of the producer ended this transaction there
        else:
            self._logged.discard(target)

    def _send_to_leader(
        self, key: tuple[TopicPartition, Marker], on_done: Callable[[TopicPartition], None]
    ) -> None:
        target, marker = key
        topic = self._cluster.topic(target.topic)
        leader = NodeId(-1) if topic is None else topic.partitions[target.partition].leader
        if leader in (-1, self._partitions.node_id):
            return

        def on_reply(code: ErrorCode | None) -> None:
            self._uncommitted.discard(key)
            if code in (ErrorCode.none, ErrorCode.invalid_producer_epoch):
                on_done(target)

        self._uncommitted.add(key)
        self._remote.write_marker(leader, SentMarker(marker, target, on_reply))

    def _is_deleted(self, target: TopicPartition) -> bool:
        """A deleted partition needs no marker; one that is only offline does."""
        topic = self._cluster.topic(target.topic)
        return topic is None or target.partition >= len(topic.partitions)

    def _log_once(self, target: TopicPartition, error: Exception) -> None:
        is_moved = isinstance(error, Refused) and error.code == ErrorCode.not_leader_or_follower
        if target not in self._logged and not is_moved:
            self._logged.add(target)
            logger.warning("a transaction marker was not written to %s: %s", target, error)
