"""DeleteRecords: move the start of a log forward."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.handler import Answer, Context, Handler
from penstock.errors import ErrorCode, Refused
from penstock.model import Offset
from penstock.protocol.messages import fill, response_type

DELETE_RECORDS: Final = 21
TO_HIGH_WATERMARK: Final = -1


def delete_records(context: Context, request: Any) -> Answer:
    """Delete all records below each given offset; answer where each log begins now."""
    entity: Answer = fill(
        response_type(DELETE_RECORDS, context.api_version),
        topics=[
            {
                "name": topic.name,
                "partitions": [_answer(context, topic.name, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ],
    )
    return entity


def _answer(context: Context, topic: str, asked: Any) -> dict[str, Any]:
    try:
        low_watermark = _delete(context, topic, asked.partition_index, asked.offset)
    except Refused as refusal:
        return {
            "partition_index": asked.partition_index,
            "low_watermark": -1,
            "error_code": refusal.code,
        }
    return {
        "partition_index": asked.partition_index,
        "low_watermark": low_watermark,
        "error_code": ErrorCode.none,
    }


def _delete(context: Context, topic: str, index: int, offset: int) -> Offset:
    partition = context.broker.partitions.find(topic, index)
    if partition is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, "no such partition here")
    partition.check_leader(-1)
    if not partition.settings.retention.delete:
        raise Refused(
            ErrorCode.policy_violation, "a topic that is only compacted deletes no records"
        )
    log = partition.log
    target = log.high_watermark if offset == TO_HIGH_WATERMARK else Offset(offset)
    if not 0 <= target <= log.high_watermark:
        raise Refused(ErrorCode.offset_out_of_range, f"the log ends at {log.high_watermark}")
    if target > log.start_offset:
        log.advance_start_offset(target, context.broker.clock())
    return log.start_offset


HANDLERS = (Handler(DELETE_RECORDS, versions=(0, 2), handle=delete_records),)
