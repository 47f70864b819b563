"""Offsets of logs, by name or by time, and the committed offsets of groups.

Each operation sends one request to every broker concerned, and retries what was refused
temporarily.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import Request, Steps, request_of
from penstock.link.routing import CoordinatorKind, Results, Routes, operation
from penstock.model import LeaderEpoch, Millis, Offset, TopicPartition
from penstock.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.messages.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchRequest,
    OffsetFetchTopic,
    PartitionError,
)

LATEST: Final = Millis(-1)  # instead of a time: the end, as far as the isolation allows reading
EARLIEST: Final = Millis(-2)
MAX_TIMESTAMP: Final = Millis(-3)  # the record with the newest timestamp
_MAX_TIMESTAMP_FROM: Final = 7
_INSTANCE_ID_FROM: Final = 7
_TIMEOUT_MS: Final = 30_000
T = TypeVar("T")


class Isolation(IntEnum):
    """Which records are visible."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetAt(NamedTuple):
    """The offset at a time. Offset -1: no record that late. Timestamp -1: requested by name."""

    offset: Offset
    timestamp: Millis
    leader_epoch: LeaderEpoch


class GroupOffset(NamedTuple):
    """What a group has committed for a partition."""

    offset: Offset
    metadata: str


class CommittingMember(NamedTuple):
    """On whose behalf a commit is made; the default is a group without members."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NO_MEMBER: Final = CommittingMember()


@operation
def list_offsets(
    routes: Routes,
    times: Mapping[TopicPartition, Millis],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Steps[dict[TopicPartition, OffsetAt]]:
    """The first offset at or after a time (or EARLIEST, LATEST), for each partition."""

    def write(partitions: Sequence[TopicPartition]) -> Request[ListOffsetsResponse]:
        return _offsets_request(
            {partition: times[partition] for partition in partitions}, isolation
        )

    return (yield from routes.for_each_leader("list offsets", times, write, _read_offsets))


@operation
def end_offsets(
    routes: Routes,
    partitions: Iterable[TopicPartition],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Steps[dict[TopicPartition, Offset]]:
    """Where each partition ends: at the high watermark, or at the last stable offset."""
    request = list_offsets(dict.fromkeys(partitions, LATEST), isolation=isolation)
    rows = yield from request(routes)
    return {partition: row.offset for partition, row in rows.items()}


@operation
def start_offsets(
    routes: Routes, partitions: Iterable[TopicPartition]
) -> Steps[dict[TopicPartition, Offset]]:
    """Where each partition begins."""
    rows = yield from list_offsets(dict.fromkeys(partitions, EARLIEST))(routes)
    return {partition: row.offset for partition, row in rows.items()}


@operation
def partitions_of(routes: Routes, topics: Iterable[str]) -> Steps[list[TopicPartition]]:
    """All partitions of these topics, from fresh metadata."""
    names = list(dict.fromkeys(topics))
    yield from routes.with_retries(
        f"describe {', '.join(names)}", lambda: routes.request_metadata(names), lambda: None
    )
    return [
        TopicPartition(name, index)
        for name in names
        for index in sorted(routes.topics[name].partitions)
    ]


@operation
def partition_count(routes: Routes, topic: str) -> Steps[int]:
    """How many partitions a topic has, from metadata that may be as old as the settings allow."""
    topics = yield from routes.with_retries(
        f"describe {topic}", lambda: routes.topic_metadata([topic]), lambda: None
    )
    return len(topics[topic].partitions)


def _offsets_request(
    times: Mapping[TopicPartition, Millis], isolation: Isolation
) -> Request[ListOffsetsResponse]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (name, index), time in times.items():
        topics.setdefault(name, []).append(ListOffsetsPartition(index, time))
    rows = [ListOffsetsTopic(*row) for row in topics.items()]
    return request_of(
        LIST_OFFSETS,
        ListOffsetsRequest(rows, int(isolation), _TIMEOUT_MS),
        version_min=_MAX_TIMESTAMP_FROM if MAX_TIMESTAMP in times.values() else 2,
    )


def _read_offsets(response: ListOffsetsResponse) -> Results[OffsetAt]:
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            code = row.error_code
            if code is ErrorCode.none:
                epoch = LeaderEpoch(row.leader_epoch)
                yield partition, OffsetAt(Offset(row.offset), Millis(row.timestamp), epoch)
            else:
                yield partition, Refused(code, f"list offsets of {partition}: {code.name}")


@operation
def committed_offsets(
    routes: Routes,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = True,
) -> Steps[dict[TopicPartition, GroupOffset]]:
    """What a group has committed, for these partitions or for all; absent: nothing.

    `require_stable` waits for open transactions that commit offsets.
    """
    topics = None if partitions is None else by_topic(partitions)
    rows = None if topics is None else [OffsetFetchTopic(*row) for row in topics.items()]
    request = request_of(
        OFFSET_FETCH,
        OffsetFetchRequest([OffsetFetchGroup(group, rows)], require_stable),
        version_min=8,
        version_max=9,  # later ones name topics by id
    )

    def attempt() -> Steps[dict[TopicPartition, GroupOffset]]:
        response = yield from routes.send_to_coordinator(CoordinatorKind.GROUP, group, request)
        (row,) = response.groups
        _accept(row.error_code, f"offsets of group {group}")
        return _committed(row, group)

    return (yield from _with_coordinator(routes, group, f"offsets of group {group}", attempt))


@operation
def commit_offsets(
    routes: Routes, group: str, offsets: Mapping[TopicPartition, Offset], *, metadata: str = ""
) -> Steps[None]:
    """Commit for a group without members: how a job publishes its progress."""
    rows = {partition: GroupOffset(offset, metadata) for partition, offset in offsets.items()}
    yield from commit_as(group, NO_MEMBER, rows)(routes)


@operation
def commit_as(
    routes: Routes,
    group: str,
    member: CommittingMember,
    offsets: Mapping[TopicPartition, GroupOffset],
) -> Steps[None]:
    """Commit offsets on behalf of a member, in its generation."""
    rows = [OffsetCommitTopic(*row) for row in offset_rows(offsets).items()]
    request = request_of(
        OFFSET_COMMIT,
        OffsetCommitRequest(group, member.generation, member.member_id, member.instance_id, rows),
        version_min=2 if member.instance_id is None else _INSTANCE_ID_FROM,
        version_max=9,  # later ones name topics by id
    )
    what = f"commit offsets of group {group}"

    def attempt() -> Steps[None]:
        response = yield from routes.send_to_coordinator(CoordinatorKind.GROUP, group, request)
        for topic, partitions in response.topics:
            accept_rows(what, str(topic), partitions)

    yield from _with_coordinator(routes, group, what, attempt)


def _with_coordinator(
    routes: Routes, group: str, what: str, attempt: Callable[[], Steps[T]]
) -> Steps[T]:
    return (
        yield from routes.with_retries(
            what, attempt, lambda: routes.invalidate_coordinator(CoordinatorKind.GROUP, group)
        )
    )


def offset_rows(
    offsets: Mapping[TopicPartition, GroupOffset],
) -> dict[str, list[OffsetCommitPartition]]:
    """Offsets by topic, as commit requests contain them."""
    rows: dict[str, list[OffsetCommitPartition]] = {}
    for (name, index), (offset, metadata) in offsets.items():
        row = OffsetCommitPartition(index, offset, committed_metadata=metadata)
        rows.setdefault(name, []).append(row)
    return rows


def accept_rows(what: str, topic: str, rows: Iterable[PartitionError]) -> None:
    """Raise the first refusal among the partitions of a topic."""
    for index, code in rows:
        _accept(code, f"{what} ({topic}-{index})")


def _accept(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.none:
        raise Refused(code, f"{what}: {code.name}")


def _committed(result: OffsetFetchGroupResult, group: str) -> dict[TopicPartition, GroupOffset]:
    committed = {}
    for topic in result.topics:
        for row in topic.partitions:
            partition = TopicPartition(str(topic.topic), row.partition_index)
            _accept(row.error_code, f"offset of group {group} for {partition}")
            if row.committed_offset >= 0:
                offset = Offset(row.committed_offset)
                committed[partition] = GroupOffset(offset, row.metadata or "")
    return committed


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic."""
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics
