"""What brokers send to the active controller: registration, heartbeats, in-sync sets, producer ids.

Also Envelope: requests of clients that another broker forwards. A broker that is not the active
controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from penstock.broker.handler import Answer, Client, Context, Forwards, Handler, always
from penstock.broker.metadata_image import kafka_id
from penstock.broker.permissions import Operation, on_cluster
from penstock.broker.replies import when_controller_decided, when_replied
from penstock.coordination.controller.commands import (
    AllocateProducerIds,
    AlterPartitions,
    BrokerHeartbeat,
    HeartbeatReply,
    IsrChange,
    RegisterBroker,
    ReplicaCondition,
    ReplicaReport,
    ReportReplicas,
    UnregisterBroker,
)
from penstock.coordination.controller.events import NO_INCARNATION, NO_LOG_DIR, PartitionState
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.model import LeaderEpoch, NodeId, Offset, TopicId
from penstock.protocol.messages.broker_lifecycle import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    ASSIGN_REPLICAS_TO_DIRS,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    COMPLETE_DIRECTORY,
    ENVELOPE,
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlteredPartition,
    AlteredPartitionTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    EnvelopeRequest,
    EnvelopeResponse,
)
from penstock.protocol.messages.cluster import (
    UNREGISTER_BROKER,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.protocol.principals import read_principal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.protocol.varint import Buffer

PRODUCER_ID_BLOCK: Final = 1000
RECOVERING: Final = 1  # leader recovery state
NOTHING_ALLOWED: Final = 0


def register_broker(
    context: Context, request: BrokerRegistrationRequest
) -> Answer[BrokerRegistrationResponse]:
    """A process becomes a broker; its epoch."""
    controller = context.broker.controller
    if not request.listeners:
        raise Refused(ErrorCode.invalid_registration, "a broker has at least one listener")
    known_id = context.broker.cluster.cluster_id
    if request.cluster_id and known_id and request.cluster_id != known_id:
        raise Refused(
            ErrorCode.inconsistent_cluster_id, f"this is cluster {known_id}, not the broker's"
        )
    listener = request.listeners[0]
    decided = controller.submit(
        lambda caller: RegisterBroker(
            caller,
            NodeId(request.broker_id),
            request.incarnation_id or NO_INCARNATION,
            listener.host,
            listener.port,
            request.rack,
            previous_epoch=request.previous_broker_epoch,
            new_epoch=controller.end_offset,
            new_cluster_id=request.cluster_id or kafka_id(uuid4()),
            first_producer_id=secrets.randbits(30) << 32,
            log_dir=(request.log_dirs and request.log_dirs[0]) or NO_LOG_DIR,
        )
    )
    return when_controller_decided(
        context, request, decided, lambda epoch: BrokerRegistrationResponse(broker_epoch=epoch)
    )


def heartbeat(context: Context, request: BrokerHeartbeatRequest) -> Answer[BrokerHeartbeatResponse]:
    """A broker is alive."""
    controller = context.broker.controller
    context.broker.lost_brokers.watch(
        context.client, NodeId(request.broker_id), request.broker_epoch
    )
    decided = controller.submit(
        lambda caller: BrokerHeartbeat(
            caller,
            NodeId(request.broker_id),
            request.broker_epoch,
            Offset(request.current_metadata_offset),
            request.want_fence,
            request.want_shut_down,
            controller.end_offset,
        )
    )

    def respond(reply: HeartbeatReply) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse(
            is_caught_up=reply.is_caught_up,
            is_fenced=reply.is_fenced,
            should_shut_down=reply.may_stop,
        )

    return when_controller_decided(context, request, decided, respond)


def unregister_broker(
    context: Context, request: UnregisterBrokerRequest
) -> Answer[UnregisterBrokerResponse]:
    """Remove a broker that will not come back."""
    decided = context.broker.controller.submit(
        lambda caller: UnregisterBroker(caller, NodeId(request.broker_id))
    )
    return when_controller_decided(context, request, decided, lambda _: UnregisterBrokerResponse())


def allocate_producer_ids(
    context: Context, request: AllocateProducerIdsRequest
) -> Answer[AllocateProducerIdsResponse]:
    """A block of producer ids that no other broker gets."""
    decided = context.broker.controller.submit(
        lambda caller: AllocateProducerIds(caller, PRODUCER_ID_BLOCK)
    )
    return when_controller_decided(
        context,
        request,
        decided,
        lambda first: AllocateProducerIdsResponse(
            producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK
        ),
    )


def alter_partition(
    context: Context, request: AlterPartitionRequest
) -> Answer[AlterPartitionResponse]:
    """Leaders propose in-sync sets."""
    rows = [
        (UUID(int=0) if topic.topic_id is None else topic.topic_id, row)
        for topic in request.topics
        for row in topic.partitions
    ]
    changes = tuple(
        IsrChange(
            TopicId(topic_id),
            row.partition_index,
            LeaderEpoch(row.leader_epoch),
            row.partition_epoch,
            tuple(
                (NodeId(member.broker_id), member.broker_epoch)
                for member in row.new_isr_with_epochs
            )
            or tuple((NodeId(node), -1) for node in row.new_isr),
            row.leader_recovery_state == RECOVERING,
        )
        for topic_id, row in rows
    )
    decided = context.broker.controller.submit(
        lambda caller: AlterPartitions(
            caller, NodeId(request.broker_id), request.broker_epoch, changes
        )
    )

    def respond(results: Sequence[PartitionState | Refused]) -> AlterPartitionResponse:
        topics: dict[UUID, list[AlteredPartition]] = {}
        for (topic_id, row), result in zip(rows, results, strict=True):
            topics.setdefault(topic_id, []).append(_altered(row.partition_index, result))
        return AlterPartitionResponse(
            topics=[AlteredPartitionTopic(topic_id, each) for topic_id, each in topics.items()]
        )

    return when_controller_decided(context, request, decided, respond)


def _altered(index: int, result: PartitionState | Refused) -> AlteredPartition:
    if isinstance(result, Refused):
        return AlteredPartition(index, result.code)
    return AlteredPartition(
        index,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=result.isr,
        leader_recovery_state=RECOVERING if result.is_recovering else NOTHING_ALLOWED,
        partition_epoch=result.partition_epoch,
    )


_CONDITIONS: Final = {
    UNASSIGNED_DIRECTORY: ReplicaCondition.EMPTY,
    LOST_DIRECTORY: ReplicaCondition.OFFLINE,
    COMPLETE_DIRECTORY: ReplicaCondition.COMPLETE,
}


def assign_replicas(
    context: Context, request: AssignReplicasToDirsRequest
) -> Answer[AssignReplicasToDirsResponse]:
    """A broker reports how its replicas are. A directory of its own: online."""
    rows = [
        (directory.id_ or UNASSIGNED_DIRECTORY, topic.topic_id or UUID(int=0), row.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for row in topic.partitions
    ]
    reports = tuple(
        ReplicaReport(
            TopicId(topic_id), index, _CONDITIONS.get(directory_id, ReplicaCondition.ONLINE)
        )
        for directory_id, topic_id, index in rows
    )
    decided = context.broker.controller.submit(
        lambda caller: ReportReplicas(
            caller, NodeId(request.broker_id), request.broker_epoch, reports
        )
    )

    def respond(results: Sequence[PartitionState | Refused]) -> AssignReplicasToDirsResponse:
        directories: dict[UUID, dict[UUID, list[AssignedPartitionResult]]] = {}
        for (directory_id, topic_id, index), result in zip(rows, results, strict=True):
            code = result.code if isinstance(result, Refused) else ErrorCode.none
            topics = directories.setdefault(directory_id, {})
            topics.setdefault(topic_id, []).append(AssignedPartitionResult(index, code))
        return AssignReplicasToDirsResponse(
            directories=[
                AssignedDirectoryResult(
                    directory_id, [AssignedTopicResult(*each) for each in topics.items()]
                )
                for directory_id, topics in directories.items()
            ]
        )

    return when_controller_decided(context, request, decided, respond)


def envelope(context: Context, request: EnvelopeRequest) -> Answer[EnvelopeResponse]:
    """Decide the request of another broker's client."""
    broker = context.broker
    if not broker.controller.is_active:
        raise Refused(ErrorCode.not_controller, "this broker is not the active controller")
    try:
        principal = read_principal(request.request_principal or b"")
        client = Client(_host(request.client_host_address), 0, principal=principal)
        inner, answer = broker.dispatcher.begin(
            client, memoryview(request.request_data), only_forwarded=True
        )
    except Malformed as error:
        raise Refused(ErrorCode.invalid_request, f"the forwarded request: {error}") from error

    def respond(response: Any) -> EnvelopeResponse:
        frame: list[Buffer] = broker.dispatcher.encode(inner, response)
        size_bytes = 4  # of the frame's size field, which an envelope does not have
        data = b"".join(bytes(part) for part in frame)[size_bytes:]
        return EnvelopeResponse(response_data=data, metadata_offset=broker.follower.applied.offset)

    return when_replied(answer, respond)


def _host(packed: bytes) -> str:
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    try:
        return socket.inet_ntop(family, packed)
    except (OSError, ValueError) as error:
        raise Malformed(f"an address of {len(packed)} bytes", 0) from error


_CLUSTER_ACTION: Final = on_cluster(Operation.CLUSTER_ACTION)

HANDLERS = (
    Handler(BROKER_REGISTRATION, (0, 4), register_broker, _CLUSTER_ACTION, before_ready=always),
    Handler(BROKER_HEARTBEAT, (0, 1), heartbeat, _CLUSTER_ACTION, before_ready=always),
    Handler(
        ALLOCATE_PRODUCER_IDS, (0, 0), allocate_producer_ids, _CLUSTER_ACTION, before_ready=always
    ),
    Handler(ALTER_PARTITION, (2, 3), alter_partition, _CLUSTER_ACTION, before_ready=always),
    Handler(ASSIGN_REPLICAS_TO_DIRS, (0, 0), assign_replicas, _CLUSTER_ACTION, before_ready=always),
    Handler(ENVELOPE, (0, 0), envelope, _CLUSTER_ACTION, before_ready=always),
    Handler(
        UNREGISTER_BROKER,
        (0, 0),
        unregister_broker,
        on_cluster(Operation.ALTER),
        forwards=Forwards.WHOLE,
    ),
)
