"""Writing the outcome of transactions into the partitions of this broker.

A marker counts as written when it can no longer be lost, or when its partition no longer exists.
Everything else is left for another try, by whoever wants the marker written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from penstock.broker.broker import ClusterView
from penstock.broker.partitions import Partition, Partitions
from penstock.errors import ErrorCode, Refused
from penstock.model import Millis, Moment, TopicPartition
from penstock.protocol.control import Marker, build_marker

logger = logging.getLogger(__name__)


def write_marker(partition: Partition, marker: Marker, now: Millis) -> asyncio.Future[None] | None:
    """End a transaction in a partition led here; None when it is committed already."""
    batch = build_marker(
        commit=marker.commit,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now,
    )
    appended = partition.append_marker(batch, marker, now=now)
    return partition.when_committed(appended.end_offset)


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
        done = [target for target in targets if self._write_one(marker, target, now, report)]
        if done:
            report(frozenset(done))

    def _write_one(
        self,
        marker: Marker,
        target: TopicPartition,
        now: Millis,
        report: Callable[[frozenset[TopicPartition]], None],
    ) -> bool:
        partition = self._partitions.find(*target)
        if partition is None:
            return self._is_gone(target)
        if not partition.is_led_here:
            return False
        try:
            committed = write_marker(partition, marker, now)
        except Refused as refusal:
            return self._is_moot(target, refusal)
        except OSError as error:
            self._complain(target, error)
            return False
        self._complained.discard(target)
        if committed is None:
            return True
        committed.add_done_callback(lambda future: _report_committed(future, target, report))
        return False

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


def _report_committed(
    committed: asyncio.Future[None],
    target: TopicPartition,
    report: Callable[[frozenset[TopicPartition]], None],
) -> None:
    if not committed.cancelled() and committed.exception() is None:
        report(frozenset((target,)))
