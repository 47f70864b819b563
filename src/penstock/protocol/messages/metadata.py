"""The answer to Metadata, versions 0 to 13.

A topic's bytes do not depend on who asks, so a broker may pack each topic once per version and
keep the bytes: `pack_metadata` takes topics in either form.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.fields import NO_TOPIC_ID, Encoding, Node, encoding_of

METADATA: Final = 3
OPERATIONS_UNASKED: Final = -(1 << 31)  # the client did not ask what it is allowed to do

_RACKS_FROM: Final = 1  # and the controller, and which topics are internal
_CLUSTER_ID_FROM: Final = 2
_THROTTLE_FROM: Final = 3
_OFFLINE_FROM: Final = 5
_LEADER_EPOCH_FROM: Final = 7
_TOPIC_OPERATIONS_FROM: Final = 8
_CLUSTER_OPERATIONS: Final = range(8, 11)
_TOPIC_IDS_FROM: Final = 10
_ERROR_FROM: Final = 13

_INT_32: Final = Struct(">i")
_ERROR: Final = Struct(">h")
_PARTITION_0: Final = Struct(
    ">"
    "h"  # error_code
    "i"  # partition
    "i"  # leader_id  -1: none
)
_PARTITION_7: Final = Struct(
    ">"
    "h"  # error_code
    "i"  # partition
    "i"  # leader_id
    "i"  # leader_epoch
)


class PartitionAnswer(NamedTuple):
    """Who holds one partition."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    offline: Sequence[int] = ()


class TopicAnswer(NamedTuple):
    """One topic; without a name when it was asked for by an id that nobody knows."""

    name: str | None
    partitions: Sequence[PartitionAnswer] = ()
    error_code: int = 0
    topic_id: bytes = NO_TOPIC_ID
    is_internal: bool = False
    authorized_operations: int = OPERATIONS_UNASKED


def pack_metadata(
    version: int,
    topics: Iterable[TopicAnswer | bytes],
    *,
    brokers: Sequence[Node],
    cluster_id: str | None,
    controller_id: int,
    throttle_ms: int = 0,
    authorized_operations: int = OPERATIONS_UNASKED,
    error_code: int = 0,
) -> bytes:
    """The body."""
    encoding = encoding_of(METADATA, version)
    packed = [topic if isinstance(topic, bytes) else pack_topic(version, topic) for topic in topics]
    parts = [_INT_32.pack(throttle_ms)] if version >= _THROTTLE_FROM else []
    parts.append(encoding.count(len(brokers)))
    parts += [_pack_broker(version, encoding, broker) for broker in brokers]
    if version >= _CLUSTER_ID_FROM:
        parts.append(encoding.string(cluster_id))
    if version >= _RACKS_FROM:
        parts.append(_INT_32.pack(controller_id))
    parts.append(encoding.count(len(packed)))
    parts += packed
    if version in _CLUSTER_OPERATIONS:
        parts.append(_INT_32.pack(authorized_operations))
    if version >= _ERROR_FROM:
        parts.append(_ERROR.pack(error_code))
    parts.append(encoding.no_tags)
    return b"".join(parts)


def pack_topic(version: int, topic: TopicAnswer) -> bytes:
    """One topic's part of the body."""
    encoding = encoding_of(METADATA, version)
    parts = [_ERROR.pack(topic.error_code), encoding.string(topic.name)]
    if version >= _TOPIC_IDS_FROM:
        parts.append(topic.topic_id)
    if version >= _RACKS_FROM:
        parts.append(b"\1" if topic.is_internal else b"\0")
    parts.append(encoding.count(len(topic.partitions)))
    parts += [_pack_partition(version, encoding, partition) for partition in topic.partitions]
    if version >= _TOPIC_OPERATIONS_FROM:
        parts.append(_INT_32.pack(topic.authorized_operations))
    parts.append(encoding.no_tags)
    return b"".join(parts)


def _pack_broker(version: int, encoding: Encoding, broker: Node) -> bytes:
    parts = [_INT_32.pack(broker.node_id), encoding.string(broker.host), _INT_32.pack(broker.port)]
    if version >= _RACKS_FROM:
        parts.append(encoding.string(broker.rack))
    parts.append(encoding.no_tags)
    return b"".join(parts)


def _pack_partition(version: int, encoding: Encoding, answer: PartitionAnswer) -> bytes:
    if version >= _LEADER_EPOCH_FROM:
        fixed = _PARTITION_7.pack(*answer[:4])
    else:
        fixed = _PARTITION_0.pack(*answer[:3])
    nodes = encoding.ints(answer.replicas) + encoding.ints(answer.in_sync)
    if version >= _OFFLINE_FROM:
        nodes += encoding.ints(answer.offline)
    return fixed + nodes + encoding.no_tags
