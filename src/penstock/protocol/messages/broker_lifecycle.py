"""What brokers send to the controller: registration, heartbeats, ISR changes, forwarded requests.

BrokerRegistration, BrokerHeartbeat, AlterPartition, AssignReplicasToDirs, AllocateProducerIds,
Envelope.
"""

from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.protocol.api import Api
from penstock.protocol.bind import bind
from penstock.protocol.fields import FLEXIBLE, tagged

NO_BROKER_EPOCH: Final = -1

# BrokerRegistration.


class BrokerListener(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int


class BrokerFeature(NamedTuple):
    name: str
    min_supported_version: int
    max_supported_version: int


class BrokerRegistrationRequest(NamedTuple):
    broker_id: int
    cluster_id: str
    incarnation_id: UUID | None
    listeners: Sequence[BrokerListener]
    features: Sequence[BrokerFeature]
    rack: str | None = None
    is_migrating_zk_broker: bool = False
    log_dirs: Sequence[UUID | None] = ()
    previous_broker_epoch: int = NO_BROKER_EPOCH


class BrokerRegistrationResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    broker_epoch: int = NO_BROKER_EPOCH


BROKER_REGISTRATION: Final = bind(
    Api.BROKER_REGISTRATION, BrokerRegistrationRequest, BrokerRegistrationResponse
)

# BrokerHeartbeat.


class BrokerHeartbeatRequest(NamedTuple):
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: Sequence[UUID | None] = ()
    cordoned_log_dirs: Sequence[UUID | None] | None = None


class BrokerHeartbeatResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


BROKER_HEARTBEAT: Final = bind(
    Api.BROKER_HEARTBEAT, BrokerHeartbeatRequest, BrokerHeartbeatResponse
)

# AlterPartition.


class IsrMember(NamedTuple):
    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH


class AlterPartitionRow(NamedTuple):
    """The in-sync replicas that a leader wants for one partition."""

    partition_index: int
    leader_epoch: int
    partition_epoch: int
    new_isr: Sequence[int] = ()  # version 2 only
    new_isr_with_epochs: Sequence[IsrMember] = ()
    leader_recovery_state: int = 0


class AlterPartitionTopic(NamedTuple):
    topic_id: UUID | None
    partitions: Sequence[AlterPartitionRow]


class AlterPartitionRequest(NamedTuple):
    broker_id: int
    broker_epoch: int
    topics: Sequence[AlterPartitionTopic]


class AlteredPartition(NamedTuple):
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    leader_id: int = 0
    leader_epoch: int = 0
    isr: Sequence[int] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class AlteredPartitionTopic(NamedTuple):
    topic_id: UUID | None
    partitions: Sequence[AlteredPartition]


class AlterPartitionResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    topics: Sequence[AlteredPartitionTopic] = ()


ALTER_PARTITION: Final = bind(Api.ALTER_PARTITION, AlterPartitionRequest, AlterPartitionResponse)

# AssignReplicasToDirs. Brokers have one directory; its reserved ids say how a replica is.

UNASSIGNED_DIRECTORY: Final = UUID(int=0)  # the replica is to be filled again
LOST_DIRECTORY: Final = UUID(int=1)  # its log cannot be used
COMPLETE_DIRECTORY: Final = UUID(int=99)  # ours: its log holds all that the replica acknowledged


class AssignedPartition(NamedTuple):
    partition_index: int


class AssignedTopic(NamedTuple):
    topic_id: UUID | None
    partitions: Sequence[AssignedPartition]


class AssignedDirectory(NamedTuple):
    id_: UUID | None  # None: unassigned
    topics: Sequence[AssignedTopic]


class AssignReplicasToDirsRequest(NamedTuple):
    broker_id: int
    broker_epoch: int
    directories: Sequence[AssignedDirectory]


class AssignedPartitionResult(NamedTuple):
    partition_index: int
    error_code: ErrorCode = ErrorCode.none


class AssignedTopicResult(NamedTuple):
    topic_id: UUID | None
    partitions: Sequence[AssignedPartitionResult]


class AssignedDirectoryResult(NamedTuple):
    id_: UUID | None
    topics: Sequence[AssignedTopicResult]


class AssignReplicasToDirsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    directories: Sequence[AssignedDirectoryResult] = ()


ASSIGN_REPLICAS_TO_DIRS: Final = bind(
    Api.ASSIGN_REPLICAS_TO_DIRS, AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
)

# AllocateProducerIds.


class AllocateProducerIdsRequest(NamedTuple):
    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH


class AllocateProducerIdsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    producer_id_start: int = 0
    producer_id_len: int = 0


ALLOCATE_PRODUCER_IDS: Final = bind(
    Api.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest, AllocateProducerIdsResponse
)

# Envelope.


class EnvelopeRequest(NamedTuple):
    """A client's request, header included, that a broker forwards to the controller."""

    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(NamedTuple):
    """The response to the client, header included."""

    error_code: ErrorCode = ErrorCode.none
    response_data: bytes | None = None
    # Ours: once a broker has applied everything below, it has applied the change. Other brokers
    # skip the tagged field that it is in.
    metadata_offset: int = -1


_OFFSET_TAG: Final = 10_000
_OFFSET: Final = Struct(">q")
_BOUND_ENVELOPE: Final = bind(Api.ENVELOPE, EnvelopeRequest, EnvelopeResponse)


def _write_envelope_response(response: EnvelopeResponse, version: int, throttle_ms: int) -> bytes:
    body = _BOUND_ENVELOPE.write_response(response, version, throttle_ms)
    assert isinstance(body, bytes)
    if response.metadata_offset < 0:
        return body
    assert body.endswith(FLEXIBLE.no_tags)
    field = _OFFSET_TAG, _OFFSET.pack(response.metadata_offset)
    return body[: -len(FLEXIBLE.no_tags)] + tagged(field)


def _read_envelope_response(frame: memoryview, position: int, version: int) -> EnvelopeResponse:
    response = _BOUND_ENVELOPE.read_response(frame, position, version)
    ending = tagged((_OFFSET_TAG, bytes(_OFFSET.size)))[: -_OFFSET.size]
    at = len(frame) - _OFFSET.size
    if bytes(frame[max(at - len(ending), position) : at]) != ending:
        return response
    return response._replace(metadata_offset=_OFFSET.unpack_from(frame, at)[0])


ENVELOPE: Final = replace(
    _BOUND_ENVELOPE,
    read_response=_read_envelope_response,
    write_response=_write_envelope_response,
)
