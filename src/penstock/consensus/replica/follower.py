"""What a follower does with the response to one of its fetches. Pure; a small state per partition.

A response is used only if it replies to where the follower's log ends now, in the epoch it follows.
With a diverging epoch nothing is appended and neither high watermark nor log start move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.errors import ErrorCode
from penstock.model import EpochEnd, LeaderEpoch, NodeId, Offset

if TYPE_CHECKING:
    from collections.abc import Callable

# The metadata that this broker or the leader has is behind: it catches up by itself.
_AWAIT_METADATA: Final = frozenset(
    (
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.kafka_storage_error,
        ErrorCode.replica_not_available,
        ErrorCode.offset_not_available,
    )
)


class FetchState(NamedTuple):
    """A partition that this broker follows, as its next fetch describes it."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    fetch_offset: Offset  # where its log ends
    last_fetched_epoch: LeaderEpoch  # of its last batch; -1: it has none


class Fetched(NamedTuple):
    """One partition of a fetch response, and the fetch it replies to."""

    asked: FetchState
    error_code: ErrorCode
    high_watermark: Offset
    log_start_offset: Offset
    diverging: EpochEnd | None
    has_records: bool


class Append(NamedTuple):
    """Append the records, then take over the leader's high watermark and log start."""

    high_watermark: Offset
    log_start_offset: Offset


class Truncate(NamedTuple):
    """Cut the log to this end, and fetch from there."""

    end_offset: Offset
    is_below_high_watermark: bool  # committed records go: only after an unclean election


class Restart(NamedTuple):
    """Drop the whole log and start at this offset: the leader has nothing older."""

    offset: Offset


class Follow(NamedTuple):
    """Nothing to append: take over high watermark and log start, and fetch again."""

    high_watermark: Offset
    log_start_offset: Offset


class RetryLater(NamedTuple):
    """Fetch again after a pause, or when the metadata says something new."""

    reason: ErrorCode


class Locate(NamedTuple):
    """Ask the leader for its first and last offset: the fetch offset is outside its log."""


class Stop(NamedTuple):
    """This partition's replica cannot go on; the others do."""

    reason: str


Step: TypeAlias = Append | Truncate | Follow | RetryLater | Locate | Stop


def decide_response(
    now_following: FetchState,
    high_watermark: Offset,
    fetched: Fetched,
    end_of_epoch: Callable[[LeaderEpoch], EpochEnd],
) -> Step | None:
    """The follower's next step; None: the response is stale and is dropped.

    `end_of_epoch` looks into the follower's own log: where the largest epoch not above the given
    one ends there (epoch -1: it has none as old).
    """
    asked = fetched.asked
    if (asked.leader_epoch, asked.fetch_offset) != (
        now_following.leader_epoch,
        now_following.fetch_offset,
    ):
        return None
    if fetched.error_code == ErrorCode.offset_out_of_range:
        return Locate()
    if fetched.error_code in _AWAIT_METADATA:
        return RetryLater(fetched.error_code)
    if fetched.error_code == ErrorCode.corrupt_message:
        return Stop("the leader reports a corrupt message at the fetch offset")
    if fetched.error_code != ErrorCode.none:
        return RetryLater(fetched.error_code)
    if fetched.diverging is not None:
        return _truncate(now_following, high_watermark, fetched.diverging, end_of_epoch)
    if fetched.has_records:
        return Append(fetched.high_watermark, fetched.log_start_offset)
    return Follow(fetched.high_watermark, fetched.log_start_offset)


def _truncate(
    following: FetchState,
    high_watermark: Offset,
    diverging: EpochEnd,
    end_of_epoch: Callable[[LeaderEpoch], EpochEnd],
) -> Step:
    """Cut back to the last point both logs may share; several rounds are normal."""
    own = end_of_epoch(diverging.epoch)
    if own.epoch == diverging.epoch:
        end_offset = min(own.end_offset, diverging.end_offset)
    elif own.epoch >= 0:
        end_offset = own.end_offset  # of a smaller epoch: the next fetch asks about that one
    else:
        end_offset = Offset(min(diverging.end_offset, following.fetch_offset))
    if end_offset >= following.fetch_offset:
        return Stop(
            f"the leader's epoch {diverging.epoch} ends at {diverging.end_offset}, which leaves"
            f" nothing to truncate below {following.fetch_offset}"
        )
    return Truncate(end_offset, end_offset < high_watermark)


def decide_located(
    fetch_offset: Offset, leader_start: Offset, leader_end: Offset, high_watermark: Offset
) -> Truncate | Restart | RetryLater:
    """Where this replica continues, now that it knows where the leader's log starts and ends."""
    if leader_end < fetch_offset:
        return Truncate(leader_end, leader_end < high_watermark)
    if fetch_offset < leader_start:
        return Restart(leader_start)
    return RetryLater(ErrorCode.offset_out_of_range)
