"""DescribeProducers: who writes to a partition, and whose transaction is open there."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.handler import Answer, Context, Handler
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages import fill, response_type

DESCRIBE_PRODUCERS: Final = 61


def describe_producers(context: Context, request: Any) -> Answer:
    """The producers that each partition remembers."""
    entity: Answer = fill(
        response_type(DESCRIBE_PRODUCERS, context.api_version),
        topics=[
            {
                "name": topic.name,
                "partitions": [
                    _answer(context, topic.name, index) for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ],
    )
    return entity


def _answer(context: Context, topic: str, index: int) -> dict[str, Any]:
    try:
        partition = context.broker.partitions.find(topic, index)
        if partition is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, "no such partition here")
        partition.check_leader(-1)
    except Refused as refusal:
        return {
            "partition_index": index,
            "error_code": refusal.code,
            "error_message": refusal.message,
            "active_producers": [],
        }
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.current_txn_start_offset,
            }
            for producer in partition.log.producers.active()
        ],
    }


HANDLERS = (Handler(DESCRIBE_PRODUCERS, versions=(0, 0), handle=describe_producers),)
