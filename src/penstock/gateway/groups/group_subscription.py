"""What a member of a consumer group reads, and what it does with unreadable events. Pure."""

from enum import StrEnum
from typing import Final, NamedTuple

from penstock.gateway.groups.topic_pattern import TopicPattern

SESSION_MS_MIN: Final = 6_000  # what brokers allow
SESSION_MS_MAX: Final = 300_000


class UnreadablePolicy(StrEnum):
    """What becomes of an event that cannot be decoded."""

    QUARANTINE = "quarantine"  # as in the client: written to `<topic>.quarantine`, not returned
    SKIP = "skip"
    RETURN = "return"  # as base64, with an error


class GroupSubscription(NamedTuple):
    """What a member of a group reads."""

    group: str
    topics: tuple[str, ...]  # empty with a pattern
    session_ms: int
    is_latest: bool = False  # where to start without a committed offset: at the end
    pattern: TopicPattern | None = None
    instance_id: str | None = None  # a static member: a restart causes no rebalance
    on_unreadable: UnreadablePolicy = UnreadablePolicy.QUARANTINE
