"""What classic consumers tell each other inside the group protocol: subscriptions and assignments.

To the classic protocol these bytes are the clients' own affair. A coordinator that has members of
both protocols in one group must read and write them. Versions 0 to 3; a newer one is read as far
as 3 goes.

What members subscribe to: the topics inside a classic consumer's metadata, and RE2 patterns.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import re2

from penstock.coordination.groups.codec_consumer import Assignment
from penstock.coordination.groups.fields import INT16, INT32, FieldReader, write_string
from penstock.coordination.groups.state import TopicCatalogue
from penstock.errors import ErrorCode, Malformed, Refused

_NEWEST: Final = 3
_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3
_NO_USER_DATA: Final = INT32.pack(-1)


class EmbeddedSubscription(NamedTuple):
    """What a classic consumer says of itself when it joins."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]  # by topic name; an eager consumer owns nothing by then
    rack_id: str | None


def read_embedded_subscription(packed: bytes) -> EmbeddedSubscription:
    """The metadata of a consumer's protocol; Malformed when it is somebody else's."""
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
    """The partitions by topic name that a leader gave to a member; nothing when it never did."""
    if not packed:
        return {}
    fields = FieldReader(packed, INT16.size)
    return dict(fields.array(lambda: _topic(fields)))


def write_embedded_assignment(parts: Mapping[str, Iterable[int]], version: int) -> bytes:
    """An assignment in the version that the member itself spoke, topics in order."""
    packed = [INT16.pack(min(version, _NEWEST)), INT32.pack(len(parts))]
    for name in sorted(parts):
        partitions = tuple(parts[name])
        packed += (write_string(name), INT32.pack(len(partitions)), *map(INT32.pack, partitions))
    return b"".join((*packed, _NO_USER_DATA))


def version_of(packed: bytes) -> int:
    """The version a member speaks."""
    return FieldReader(packed).int16()


def by_topic_id(
    parts: Mapping[str, tuple[int, ...]], topics: TopicCatalogue
) -> dict[UUID, tuple[int, ...]]:
    """The same partitions by topic id; topics that are gone have none."""
    return {
        topics.by_name[name].topic_id: tuple(sorted(set(partitions)))
        for name, partitions in parts.items()
        if name in topics.by_name and partitions
    }


def by_topic_name(assignment: Assignment, topics: TopicCatalogue) -> dict[str, tuple[int, ...]]:
    """The same partitions by topic name; topics that are gone have none."""
    return {
        topics.names[topic_id]: tuple(partitions)
        for topic_id, partitions in assignment.items()
        if topic_id in topics.names
    }


def _topic(fields: FieldReader) -> tuple[str, tuple[int, ...]]:
    return fields.string(), fields.array(fields.int32)


INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state"))


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that consumers' metadata name; None when one of them is not a consumer's."""
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
    """Refuse a pattern that RE2 does not understand."""
    try:
        re2.compile(pattern, _quiet())
    except re2.error as error:
        why = error.args[0].decode(errors="replace")  # RE2 speaks in bytes
        raise Refused(
            ErrorCode.invalid_regular_expression,
            f"{pattern!r} is not a regular expression in RE2's syntax: {why}",
        ) from None


def matching_topics(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """The topics whose whole name the pattern matches, in order; never the brokers' own."""
    matches = re2.compile(pattern, _quiet()).fullmatch
    return tuple(sorted(name for name in names if name not in INTERNAL_TOPICS and matches(name)))


def _quiet() -> re2.Options:
    options = re2.Options()
    options.log_errors = False  # RE2 would write to stderr what the client is told anyway
    return options
