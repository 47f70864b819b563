"""OffsetCommit of one partition, by fewer steps: most requests of a busy coordinator are of it.

The rules are the coordinator's, as for every commit; only what is read and answered is less.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final
from uuid import UUID

from penstock.broker.handler import Answer, Answered, Context
from penstock.broker.handlers.groups import when_answered
from penstock.coordination.groups.commands import CommitOffsets, OffsetToCommit
from penstock.errors import ErrorCode, Refused
from penstock.model import TopicId
from penstock.protocol.answers.offset_commit import pack_one_commit
from penstock.protocol.commit_request import CommitHead, OneCommit

EPOCHS_FROM: Final = 9  # knows STALE_MEMBER_EPOCH


def commit_one(context: Context, request: OneCommit) -> Answer:
    """Where a group is in one partition."""
    head, offset, epoch = request
    group_id, generation, member_id, instance_id, topic, partition = head
    groups, cluster = context.broker.groups, context.broker.cluster
    if isinstance(topic, str):
        known, unknown_code = cluster.topic(topic), ErrorCode.unknown_topic_or_partition
    else:
        known = cluster.topic_by_id(TopicId(UUID(bytes=topic)))
        unknown_code = ErrorCode.unknown_topic_id
    if known is None:
        return pack_one_commit(topic, partition, unknown_code, context.throttle_ms)
    if not 0 <= partition < len(known.partitions):
        unknown_code = ErrorCode.unknown_topic_or_partition
        return pack_one_commit(topic, partition, unknown_code, context.throttle_ms)
    try:
        coordinator = groups.coordinator_of(group_id)
    except Refused as refusal:
        return _answer(context, head, refusal)
    caller = coordinator.mint_caller()
    command = CommitOffsets(
        caller,
        group_id,
        generation,
        member_id,
        instance_id,
        (OffsetToCommit(known.name, partition, offset, epoch, "", known.topic_id),),
        None,
        context.api_version >= EPOCHS_FROM,
        groups.rules_of(group_id).is_monotonic,
    )
    return when_answered(coordinator.ask(command, caller), partial(_answer, context, head))


def _answer(context: Context, head: CommitHead, result: Any) -> Answered:
    code = result.code if isinstance(result, Refused) else result.codes[0]
    return pack_one_commit(head.topic, head.partition, code, context.throttle_ms)
