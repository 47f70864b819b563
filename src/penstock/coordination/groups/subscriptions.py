"""Subscriptions: those inside the metadata of classic consumers, and RE2 patterns.

In the classic protocol, subscriptions and assignments are opaque to the broker. A coordinator with
members of both protocols in one group must read and write them. Versions 0 to 3; of a newer one,
the fields of version 3 are read.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import re2

from penstock.coordination.groups.codec_consumer import Assignment
from penstock.coordination.groups.record_fields import INT16, INT32, FieldReader, write_string
from penstock.coordination.groups.state import TopicCatalogue
from penstock.errors import ErrorCode, Malformed, Refused

_NEWEST: Final = 3
_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3
_NO_USER_DATA: Final = INT32.pack(-1)


class EmbeddedSubscription(NamedTuple):
    """What a classic consumer says about itself when it joins."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]  # by topic name; none of an eager consumer
    rack_id: str | None


def read_embedded_subscription(packed: bytes) -> EmbeddedSubscription:
    """The metadata of a consumer; Malformed when it is of another kind of client."""
    fields = FieldReader(packed)
    version = fields.int16()
    if version < 0:
        raise Malformed(f"{version} is not a version of a subscription", 0)
    topics = fields.array(fields.string)
    fields.bytes_()
    owned = dict(fields.array(lambda: _topic(fields))) if version >= _OWNED_FROM else {}
    if version >= _GENERATION_FROM:
        fields.int32()
    rack_id = fields.nullable_string() if version >= _RACK_FROM else None
    return EmbeddedSubscription(version, topics, owned, rack_id or None)


def read_embedded_assignment(packed: bytes) -> dict[str, tuple[int, ...]]:
    """The partitions by topic name that a leader assigned to a member; empty before the first."""
    if not packed:
        return {}
    fields = FieldReader(packed, INT16.size)
    return dict(fields.array(lambda: _topic(fields)))


def write_embedded_assignment(assignment: Mapping[str, Iterable[int]], version: int) -> bytes:
    """An assignment in the version that the member itself used, topics in order."""
    packed = [INT16.pack(min(version, _NEWEST)), INT32.pack(len(assignment))]
    for name in sorted(assignment):
        partitions = tuple(assignment[name])
        packed += (write_string(name), INT32.pack(len(partitions)), *map(INT32.pack, partitions))
    return b"".join((*packed, _NO_USER_DATA))


def version_of(packed: bytes) -> int:
    """The version a member uses."""
    return FieldReader(packed).int16()


def by_topic_id(
    assignment: Mapping[str, tuple[int, ...]], topics: TopicCatalogue
) -> dict[UUID, tuple[int, ...]]:
    """The same partitions by topic id, without deleted topics."""
    return {
        topics.by_name[name].topic_id: tuple(sorted(set(partitions)))
        for name, partitions in assignment.items()
        if name in topics.by_name and partitions
    }


def by_topic_name(assignment: Assignment, topics: TopicCatalogue) -> dict[str, tuple[int, ...]]:
    """The same partitions by topic name, without deleted topics."""
    return {
        topics.names[topic_id]: tuple(partitions)
        for topic_id, partitions in assignment.items()
        if topic_id in topics.names
    }


def _topic(fields: FieldReader) -> tuple[str, tuple[int, ...]]:
    return fields.string(), fields.array(fields.int32)


INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state"))


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in the metadata of consumers; None when a member is not a consumer."""
    topics: set[str] = set()
    for packed in metadata:
        fields = FieldReader(packed)
        try:
            fields.int16()
            topics.update(fields.array(fields.string))
        except Malformed:
            return None
    return frozenset(topics)


def check_regex(pattern: str) -> None:
    """Refuse a pattern that is not in RE2's syntax."""
    try:
        re2.compile(pattern, _quiet())
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")  # RE2 gives bytes
        raise Refused(
            ErrorCode.invalid_regular_expression,
            f"{pattern!r} is not a regular expression in RE2's syntax: {reason}",
        ) from None


def matching_topics(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """The topics whose whole name the pattern matches, in order; never internal topics."""
    matches = re2.compile(pattern, _quiet()).fullmatch
    return tuple(sorted(name for name in names if name not in INTERNAL_TOPICS and matches(name)))


def _quiet() -> re2.Options:
    options = re2.Options()
    options.log_errors = False  # RE2 would write to stderr; the client gets the error
    return options
