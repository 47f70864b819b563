"""The rules of commits over HTTP: all or none, never backwards, never over an unseen change. Pure.

A committed offset has a version. It is kept in the commit's metadata together with the offset, so
that a commit of a Kafka client, which writes no such text, is seen as another version: 0, as for
an offset that was never committed over HTTP. Versions count up by one; after a commit of a Kafka
client they continue at the time in ms, so that a version is never used twice.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.model import Millis, Offset, TopicPartition

NOT_OVER_HTTP: Final = 0
_PREFIX: Final = "penstock:"


class VersionedOffset(NamedTuple):
    """What a group has committed for a partition."""

    offset: Offset
    version: int


class RequestedCommit(NamedTuple):
    """What a client wants to commit."""

    partition: TopicPartition
    offset: Offset
    expected_version: int | None = None


class CommitConflict(NamedTuple):
    """Why one of them cannot be, and what is there."""

    partition: TopicPartition
    reason: str  # version | backwards
    current: VersionedOffset | None


def read_version(offset: Offset, metadata: str) -> VersionedOffset:
    """A committed offset with its version; 0 if it was not committed over HTTP."""
    version, _, committed = metadata.removeprefix(_PREFIX).partition(":")
    is_ours = metadata.startswith(_PREFIX) and version.isdecimal() and committed == str(offset)
    return VersionedOffset(offset, int(version) if is_ours else NOT_OVER_HTTP)


def write_version(committed: VersionedOffset) -> str:
    """The metadata that goes with it."""
    return f"{_PREFIX}{committed.version}:{committed.offset}"


def decide_commit(
    current: Mapping[TopicPartition, VersionedOffset],
    wanted: Sequence[RequestedCommit],
    *,
    reset: bool,
    now: Millis,
) -> dict[TopicPartition, VersionedOffset] | list[CommitConflict]:
    """What is to be committed, or every conflict. `reset` allows to go back."""
    conflicts = []
    for commit in wanted:
        known = current.get(commit.partition)
        version = NOT_OVER_HTTP if known is None else known.version
        if commit.expected_version is not None and commit.expected_version != version:
            conflicts.append(CommitConflict(commit.partition, "version", known))
        elif known is not None and commit.offset < known.offset and not reset:
            conflicts.append(CommitConflict(commit.partition, "backwards", known))
    if conflicts:
        return conflicts
    return {
        commit.partition: VersionedOffset(
            commit.offset, _next_version(current.get(commit.partition), now)
        )
        for commit in wanted
    }


def _next_version(known: VersionedOffset | None, now: Millis) -> int:
    if known is None:
        return 1
    return known.version + 1 if known.version != NOT_OVER_HTTP else now
