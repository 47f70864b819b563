"""Writing the outcome of transactions into the partitions of this broker.

A marker counts as written when it can no longer be lost, or when its partition no longer exists.
Everything else is left for another try, by whoever wants the marker written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from penstock.broker.broker import ClusterView
from penstock.broker.partition import OnCommitted, Partition
from penstock.broker.partitions import Partitions
from penstock.errors import ErrorCode, Refused
from penstock.model import Millis, Moment, TopicPartition
from penstock.protocol.control_records import Marker, build_marker

logger = logging.getLogger(__name__)


def write_marker(
    partition: Partition, marker: Marker, now: Millis, on_committed: OnCommitted
) -> None:
    """End a transaction in a partition led here, and call when the marker is committed."""
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
    """Carries a coordinator's markers to their partitions and reports those that hold them."""

    def __init__(
        self,
        partitions: Partitions,
        cluster: ClusterView,
        clock: Callable[[], Moment],
    ) -> None:
        self._partitions = partitions
        self._cluster = cluster
        self._clock = clock
        self._complained: set[TopicPartition] = set()  # once per partition until it works again

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

        def on_done(target: TopicPartition, refusal: Refused | None = None) -> None:
            if refusal is not None:
                return
            if is_first_report_due:
                done.append(target)
            else:
                report(frozenset((target,)))

        for target in targets:
            self._write_one(marker, target, now, partial(on_done, target))
        is_first_report_due = False
        if done:
            report(frozenset(done))

    def _write_one(
        self, marker: Marker, target: TopicPartition, now: Millis, on_done: OnCommitted
    ) -> None:
        partition = self._partitions.find(*target)
        if partition is None:
            if self._is_gone(target):
                on_done(None)
            return
        if not partition.is_leader:
            return
        try:
            write_marker(partition, marker, now, on_done)
        except Refused as refusal:
            if self._is_moot(target, refusal):
                on_done(None)
        except OSError as error:
            self._complain(target, error)
        else:
            self._complained.discard(target)

    def _is_gone(self, target: TopicPartition) -> bool:
        """A deleted partition needs no marker; one that is only away does."""
        topic = self._cluster.topic(target.topic)
        return topic is None or target.partition >= len(topic.partitions)

    def _is_moot(self, target: TopicPartition, refusal: Refused) -> bool:
        """The partition has heard from a newer epoch of this producer: this end is over there."""
        self._complain(target, refusal)
        return refusal.code == ErrorCode.invalid_producer_epoch

    def _complain(self, target: TopicPartition, reason: Exception) -> None:
        if target not in self._complained:
            self._complained.add(target)
            logger.warning("a transaction marker was not written to %s: %s", target, reason)
