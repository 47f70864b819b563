"""Control records of the metadata log and of snapshots, with Apache Kafka's keys and values.

A control batch has no producer. Its records are about the log itself: who leads it, who votes,
where a snapshot starts and ends. Data batches in between hold the controller's events.
"""

from __future__ import annotations

import io
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kio.schema.leader_change_message.v1.data import LeaderChangeMessage
from kio.schema.leader_change_message.v1.data import Voter as KafkaLeaderVoter
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.types import BrokerId
from kio.schema.voters_record.v0.data import Endpoint, KRaftVersionFeature
from kio.schema.voters_record.v0.data import Voter as KafkaVoter
from kio.schema.voters_record.v0.data import VotersRecord as KafkaVotersRecord
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i64, u16

from penstock.consensus.raft import (
    LeaderChange,
    ReplicaKey,
    Voter,
    VoterEndpoint,
    VoterSet,
    VotersRecord,
)
from penstock.consensus.raft.voters import NO_DIRECTORY
from penstock.errors import Malformed
from penstock.model import Millis, NodeId, Offset
from penstock.protocol.records import Record, build_batch, read_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model import LeaderEpoch
    from penstock.protocol.varint import Buffer

_KEY: Final = Struct(
    ">"
    "h"  # version  0
    "h"  # type     as below
)
LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
VOTERS: Final = 6
_BATCH_BYTES_MAX: Final = 1 << 20


class SnapshotHeader(NamedTuple):
    """The first record of a snapshot."""

    last_timestamp: Millis  # of the log that it stands for


class SnapshotFooter(NamedTuple):
    """The last record of a snapshot: without it the file is incomplete."""


ControlRecord: TypeAlias = LeaderChange | VotersRecord | SnapshotHeader | SnapshotFooter


def build_control_batch(
    records: Sequence[ControlRecord],
    now: Millis,
    *,
    base_offset: Offset = Offset(0),
    leader_epoch: LeaderEpoch,
) -> bytearray:
    """One batch of control records."""
    return build_batch(
        [
            Record(timestamp=now, key=_KEY.pack(0, kind), value=_encode(entity))
            for kind, entity in map(_entity, records)
        ],
        base_offset=base_offset,
        control=True,
        leader_epoch=leader_epoch,
    )


def read_control_batch(batch: Buffer, position: int) -> list[tuple[Offset, ControlRecord | None]]:
    """The records of a control batch by offset; None for a type that this version does not know."""
    records = []
    for record in read_records(batch, position, max_bytes=_BATCH_BYTES_MAX):
        if record.key is None or record.value is None or len(record.key) < _KEY.size:
            raise Malformed("a control record is cut short", position)
        _, kind = _KEY.unpack_from(record.key)
        try:
            records.append((Offset(record.offset), _read(kind, record.value)))
        except (ValueError, LookupError, OverflowError) as error:
            raise Malformed(f"control record of type {kind}: {error}", position) from error
    return records


def _entity(record: ControlRecord) -> tuple[int, Any]:
    match record:
        case LeaderChange():
            voters = {voter.key.node_id: voter.key for voter in record.voters.voters}
            return LEADER_CHANGE, LeaderChangeMessage(
                version=i16(0),
                leader_id=BrokerId(record.leader_id),
                voters=tuple(map(_leader_voter, voters.values())),
                granting_voters=tuple(
                    _leader_voter(voters.get(node) or ReplicaKey(node)) for node in record.granting
                ),
            )
        case VotersRecord():
            return VOTERS, KafkaVotersRecord(
                version=i16(0), voters=tuple(map(_kafka_voter, record.voters.voters))
            )
        case SnapshotHeader():
            return SNAPSHOT_HEADER, SnapshotHeaderRecord(
                version=i16(0), last_contained_log_timestamp=i64(record.last_timestamp)
            )
        case SnapshotFooter():
            return SNAPSHOT_FOOTER, SnapshotFooterRecord(version=i16(0))


def _leader_voter(key: ReplicaKey) -> KafkaLeaderVoter:
    return KafkaLeaderVoter(voter_id=i32(key.node_id), voter_directory_id=key.directory_id)


def _kafka_voter(voter: Voter) -> KafkaVoter:
    return KafkaVoter(
        voter_id=BrokerId(voter.key.node_id),
        voter_directory_id=voter.key.directory_id,
        endpoints=tuple(
            Endpoint(name=endpoint.listener, host=endpoint.host, port=u16(endpoint.port))
            for endpoint in voter.endpoints
        ),
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=i16(0), max_supported_version=i16(1)
        ),
    )


def _read(kind: int, value: bytes) -> ControlRecord | None:
    if kind == LEADER_CHANGE:
        change = _decode(LeaderChangeMessage, value)
        voters = VoterSet(
            Voter(ReplicaKey(NodeId(voter.voter_id), voter.voter_directory_id or NO_DIRECTORY))
            for voter in change.voters
        )
        granting = tuple(NodeId(voter.voter_id) for voter in change.granting_voters)
        return LeaderChange(NodeId(change.leader_id), voters, granting)
    if kind == VOTERS:
        return VotersRecord(VoterSet(map(_voter, _decode(KafkaVotersRecord, value).voters)))
    if kind == SNAPSHOT_HEADER:
        header = _decode(SnapshotHeaderRecord, value)
        return SnapshotHeader(Millis(header.last_contained_log_timestamp))
    return SnapshotFooter() if kind == SNAPSHOT_FOOTER else None


def _voter(voter: KafkaVoter) -> Voter:
    return Voter(
        ReplicaKey(NodeId(voter.voter_id), voter.voter_directory_id or NO_DIRECTORY),
        tuple(VoterEndpoint(each.name, each.host, each.port) for each in voter.endpoints),
    )


def _encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def _decode(entity_type: Any, value: bytes) -> Any:
    return entity_reader(entity_type)(memoryview(value), 0)[0]
