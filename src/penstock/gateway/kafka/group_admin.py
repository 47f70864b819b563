"""Operations on groups: commits of members, descriptions, leaving."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import accept_rows
from penstock.link.operation import Steps, request_of
from penstock.link.routing import CoordinatorKind, Routes, operation
from penstock.model import Offset, TopicPartition
from penstock.protocol.messages.classic_groups import (
    LEAVE_GROUP,
    LeaveGroupRequest,
    LeavingMember,
)
from penstock.protocol.messages.offsets import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)


class CommittingMember(NamedTuple):
    """On whose behalf a commit is made; the default is a group without members."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class OffsetWithText(NamedTuple):
    """An offset with the text that is stored beside it."""

    offset: Offset
    metadata: str


@operation
def commit_as(
    routes: Routes,
    group: str,
    committer: CommittingMember,
    offsets: Mapping[TopicPartition, OffsetWithText],
) -> Steps[None]:
    """Commit offsets of a member, or of a group without members."""
    topics: dict[str, list[OffsetCommitPartition]] = {}
    for (topic, index), row in offsets.items():
        partition = OffsetCommitPartition(index, row.offset, committed_metadata=row.metadata)
        topics.setdefault(topic, []).append(partition)
    rows = [OffsetCommitTopic(*row) for row in topics.items()]
    body = OffsetCommitRequest(
        group, committer.generation, committer.member_id, committer.instance_id, rows
    )
    request = request_of(OFFSET_COMMIT, body, version_min=7, version_max=9)
    what = f"commit offsets of group {group}"

    def attempt() -> Steps[None]:
        response = yield from routes.send_to_coordinator(CoordinatorKind.GROUP, group, request)
        for topic, partitions in response.topics:
            accept_rows(what, str(topic), partitions)

    yield from routes.with_retries(
        what, attempt, lambda: routes.invalidate_coordinator(CoordinatorKind.GROUP, group)
    )


@operation
def leave_group(routes: Routes, group: str, members: Sequence[LeavingMember]) -> Steps[None]:
    """Remove members at once; those that are gone already are no error."""
    request = request_of(LEAVE_GROUP, LeaveGroupRequest(group, members), version_min=3)
    response = yield from routes.send_to_coordinator(CoordinatorKind.GROUP, group, request)
    if response.error_code not in (ErrorCode.none, ErrorCode.unknown_member_id):
        raise Refused(response.error_code, f"leave group {group}: {response.error_code.name}")
