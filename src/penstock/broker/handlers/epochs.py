"""OffsetForLeaderEpoch: where a leader's writing ended, so that a reader can see a cut-off tail."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.handler import Answer, Context, Handler
from penstock.errors import ErrorCode, Refused
from penstock.model import LeaderEpoch
from penstock.protocol.messages import fill, response_type

OFFSET_FOR_LEADER_EPOCH: Final = 23


def offset_for_leader_epoch(context: Context, request: Any) -> Answer:
    """The end of each epoch asked for."""
    entity: Answer = fill(
        response_type(OFFSET_FOR_LEADER_EPOCH, context.api_version),
        topics=[
            {
                "topic": topic.topic,
                "partitions": [_answer(context, topic.topic, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ],
    )
    return entity


def _answer(context: Context, topic: str, asked: Any) -> dict[str, Any]:
    try:
        partition = context.broker.partitions.find(topic, asked.partition)
        if partition is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, "no such partition here")
        partition.check_leader(asked.current_leader_epoch)
        log = partition.log
        end = log.epochs.end_offset_for(LeaderEpoch(asked.leader_epoch), log.end_offset)
        if asked.leader_epoch == partition.leader_epoch:
            # The leader has not written in its own epoch yet: it ends where the log does.
            end = end._replace(epoch=partition.leader_epoch, end_offset=log.end_offset)
    except Refused as refusal:
        return {
            "partition": asked.partition,
            "error_code": refusal.code,
            "leader_epoch": -1,
            "end_offset": -1,
        }
    return {
        "partition": asked.partition,
        "error_code": ErrorCode.none,
        "leader_epoch": end.epoch,
        "end_offset": end.end_offset,
    }


HANDLERS = (Handler(OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), handle=offset_for_leader_epoch),)
