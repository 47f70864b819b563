"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import bind
from penstock.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED

# ConsumerGroupHeartbeat.


class TopicIdPartitions(NamedTuple):
    """Partitions of one topic."""

    topic_id: UUID | None
    partitions: Sequence[int]


class ConsumerGroupHeartbeatRequest(NamedTuple):
    """None means: unchanged since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int  # 0 joins, -1 leaves, -2: a static member leaves for a while
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: Sequence[TopicIdPartitions] | None = None


class HeartbeatAssignment(NamedTuple):
    topic_partitions: Sequence[TopicIdPartitions]


class ConsumerGroupHeartbeatResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: HeartbeatAssignment | None = None  # None: unchanged


CONSUMER_GROUP_HEARTBEAT: Final = bind(
    Api.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
)

# ConsumerGroupDescribe.

CONSUMER_MEMBER: Final = 1  # member types
CLASSIC_MEMBER: Final = 0


class ConsumerGroupDescribeRequest(NamedTuple):
    group_ids: Sequence[str]
    include_authorized_operations: bool = False


class NamedTopicPartitions(NamedTuple):
    """Partitions of one topic, with its name."""

    topic_id: UUID | None
    topic_name: str
    partitions: Sequence[int]


class DescribedAssignment(NamedTuple):
    topic_partitions: Sequence[NamedTopicPartitions]


class DescribedConsumerMember(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: int = -1  # unknown


class DescribedConsumerGroup(NamedTuple):
    group_id: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[DescribedConsumerMember] = ()
    authorized_operations: int = OPERATIONS_NOT_REQUESTED


class ConsumerGroupDescribeResponse(NamedTuple):
    groups: Sequence[DescribedConsumerGroup]


def _refuse_describe(
    request: ConsumerGroupDescribeRequest, refusal: Refused
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        [
            DescribedConsumerGroup(group_id, refusal.code, refusal.message)
            for group_id in request.group_ids
        ]
    )


CONSUMER_GROUP_DESCRIBE: Final = bind(
    Api.CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    refuse=_refuse_describe,
)
