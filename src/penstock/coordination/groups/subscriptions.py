"""What members subscribe to: the topics inside a classic consumer's metadata, and RE2 patterns."""

from collections.abc import Iterable
from typing import Final

import re2

from penstock.coordination.groups.fields import FieldReader
from penstock.errors import ErrorCode, Malformed, Refused

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
