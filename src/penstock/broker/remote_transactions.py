"""Transactions across brokers: markers to the leaders of partitions, questions to coordinators.

Both go in batches, one request at a time for each broker. A marker that was not written for certain
is reported as such, and its coordinator tries again; a question that fails is refused with an error
that the producer retries.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.broker_batches import BrokerBatches
from penstock.broker.broker_links import Purpose
from penstock.errors import ErrorCode, Refused
from penstock.link.operation import FAILURES
from penstock.link.settings import Address
from penstock.protocol.messages.transactions import (
    ADD_PARTITIONS_TO_TXN,
    WRITE_TXN_MARKERS,
    AddPartitionsToTxnRequest,
    MarkerTopic,
    TransactionMarker,
    TransactionPartitions,
    TransactionTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.broker.broker_links import BrokerLinks
    from penstock.broker.metadata_image import MetadataImage
    from penstock.coordination.transactions import ProducerIdentity
    from penstock.link.aio import AsyncLink
    from penstock.machine import Deferred
    from penstock.model import NodeId, TopicPartition
    from penstock.protocol.control_records import Marker
    from penstock.protocol.messages.transactions import (
        AddPartitionsToTxnResponse,
        WriteTxnMarkersResponse,
    )

logger: Final = logging.getLogger(__name__)


class SentMarker(NamedTuple):
    """A marker for a partition that another broker leads."""

    marker: Marker
    target: TopicPartition
    on_done: Callable[[ErrorCode | None], None]  # None: the outcome is not known


class Question(NamedTuple):
    """Partitions that a coordinator adds to a transaction, or verifies that they are in it."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: Sequence[TopicPartition]
    is_verification: bool
    reply: Deferred[None]


class RemoteTransactions:
    """What this broker says to others about transactions."""

    def __init__(self, links: BrokerLinks, image: MetadataImage) -> None:
        self._links = links
        self._image = image
        self._markers: BrokerBatches[SentMarker] = BrokerBatches(self._send_markers)
        self._questions: BrokerBatches[Question] = BrokerBatches(self._send_questions)

    def close(self) -> None:
        """Send nothing more."""
        self._markers.close()
        self._questions.close()

    def write_marker(self, leader: NodeId, marker: SentMarker) -> None:
        """Have the leader of a partition write a marker."""
        self._markers.add(leader, marker)

    def ask(self, coordinator: NodeId, question: Question) -> None:
        """Have a coordinator add or verify partitions."""
        self._questions.add(coordinator, question)

    async def _connect(self, node_id: NodeId) -> AsyncLink:
        endpoint = self._image.endpoint(node_id)
        if endpoint is None:
            raise Refused(ErrorCode.broker_not_available, f"broker {node_id} is not live")
        address = Address(endpoint.host, endpoint.port)
        return await self._links.connect(address, Purpose.COORDINATION)

    # Markers.

    async def _send_markers(self, leader: NodeId, items: list[SentMarker]) -> None:
        try:
            link = await self._connect(leader)
            response = await link.call(WRITE_TXN_MARKERS, _markers_request(items))
            codes = _codes_of_markers(response)
        except FAILURES as failure:
            logger.debug("markers could not be sent to broker %d: %s", leader, failure)
            codes = {}
        for marker, target, on_done in items:
            on_done(codes.get((marker.producer_id, target.topic, target.partition)))

    # Questions.

    async def _send_questions(self, coordinator: NodeId, items: list[Question]) -> None:
        try:
            link = await self._connect(coordinator)
            response = await link.call(ADD_PARTITIONS_TO_TXN, _questions_request(items))
            codes = _codes_of_questions(response)
        except FAILURES as failure:
            for question in items:
                question.reply.resolve(
                    Refused(
                        ErrorCode.coordinator_not_available,
                        f"the coordinator cannot be reached: {failure}",
                    )
                )
            return
        for question in items:
            question.reply.resolve(_refusal(question, codes))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def _markers_request(items: Iterable[SentMarker]) -> WriteTxnMarkersRequest:
    targets: dict[Marker, list[TopicPartition]] = {}
    for marker, target, _ in items:
        targets.setdefault(marker, []).append(target)
    return WriteTxnMarkersRequest(
        [
            TransactionMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                [MarkerTopic(*each) for each in _by_topic(partitions).items()],
                marker.coordinator_epoch,
            )
            for marker, partitions in targets.items()
        ]
    )


def _codes_of_markers(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (marker.producer_id, topic.name, row.partition_index): row.error_code
        for marker in response.markers
        for topic in marker.topics
        for row in topic.partitions
    }


def _questions_request(items: Iterable[Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        [
            TransactionPartitions(
                question.transactional_id,
                question.producer.producer_id,
                question.producer.producer_epoch,
                [TransactionTopic(*each) for each in _by_topic(question.partitions).items()],
                verify_only=question.is_verification,
            )
            for question in items
        ]
    )


def _codes_of_questions(
    response: AddPartitionsToTxnResponse,
) -> dict[tuple[str, str, int], ErrorCode]:
    return {
        (transaction.transactional_id, topic.name, row.partition_index): row.partition_error_code
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for row in topic.results_by_partition
    }


def _refusal(question: Question, codes: dict[tuple[str, str, int], ErrorCode]) -> Refused | None:
    """The first error among its partitions, if there is one."""
    for topic, index in question.partitions:
        code = codes.get(
            (question.transactional_id, topic, index), ErrorCode.coordinator_not_available
        )
        if code != ErrorCode.none:
            return Refused(code, f"the coordinator refused {topic}-{index}: {code.name}")
    return None
