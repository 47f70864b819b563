"""What a client asks of a stream, and the position that follows from it. Pure.

A resume id wins over everything: a browser that reconnects sends it with the URL of the first time.
The header wins over the query parameter, which can only be older.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.gateway.errors import GatewayError, bad_request, not_found
from penstock.gateway.groups.group_subscription import (
    SESSION_MS_MAX,
    SESSION_MS_MIN,
    GroupSubscription,
    UnreadablePolicy,
)
from penstock.gateway.streams.resume_id import (
    ID_CHARACTERS_MAX,
    ResumeIdWriter,
    read_resume_id,
)
from penstock.model import NO_OFFSET, Millis, Offset, TopicPartition

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
TOPICS_MAX: Final = 100
_INT64_DIGITS_MAX: Final = 18
PARAMETERS: Final = {  # of a stream of topics, and what each means
    "offset": "Where to start: earliest, latest (the default), or a number, for one partition.",
    "timestamp": "Start at the first event at or after this time, in milliseconds.",
    "partition": "Read these partitions only, separated by commas.",
    "key": "Send only events with this key.",
    "last_event_id": "Go on after the event with this id, as the header Last-Event-ID says too.",
}


GROUP_PARAMETERS: Final = {  # of a stream of a consumer group
    "topics": "Topics, separated by commas.",
    "commit": "sent: what was sent is committed; else the client commits.",
    "auto_offset_reset": "Where to start without a committed offset: earliest (default), latest.",
    "on_decode_error": "What cannot be decoded goes to quarantine (default), skip, or return.",
    "session_timeout_ms": "After this time without a heartbeat the member leaves; default 10000.",
}


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What to read, and from where."""

    topics: tuple[str, ...]  # sorted
    partitions: tuple[int, ...] | None = None  # None: all
    key: bytes | None = None
    offset: str | Offset = LATEST
    timestamp: Millis | None = None
    resume_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """What to read as a member of a consumer group."""

    reads: GroupSubscription
    commits_sent: bool = False  # else the client commits, or acknowledges


class LogRange(NamedTuple):
    """The offsets of a partition that can be read."""

    earliest: Offset
    latest: Offset
    at_timestamp: Offset = NO_OFFSET  # the first at or after the requested time; -1: none


def read_stream_request(
    topics: str, query: Sequence[tuple[str, str]], last_event_id: str | None
) -> StreamRequest:
    """The request of a path, a query and a Last-Event-ID; GatewayError if it is not valid."""
    parameters: dict[str, str] = {}
    partitions: list[int] = []
    for name, value in query:
        if name not in PARAMETERS:
            known = ", ".join(PARAMETERS)
            raise bad_request(f"{name!r} is not a parameter of streams; there are {known}")
        if name == "partition":
            partitions += (_number(name, part) for part in value.split(","))
        elif name in parameters:
            raise bad_request(f"{name} is given twice")
        else:
            parameters[name] = value
    if "offset" in parameters and "timestamp" in parameters:
        raise bad_request("give an offset or a timestamp, not both")
    timestamp = parameters.get("timestamp")
    key = parameters.get("key")
    return StreamRequest(
        topic_names(topics),
        tuple(sorted(set(partitions))) or None,
        None if key is None else key.encode(),
        read_offset(parameters.get("offset", LATEST)),
        None if timestamp is None else Millis(_number("timestamp", timestamp)),
        last_event_id or parameters.get("last_event_id") or None,
    )


def read_group_request(
    group: str, query: Sequence[tuple[str, str]], *, acknowledges: bool
) -> GroupRequest:
    """The request for a stream of a group; GatewayError if it is not valid.

    `acknowledges`: the client acknowledges in the stream itself.
    """
    parameters = dict(query)
    if unknown := set(parameters) - set(GROUP_PARAMETERS):
        known = ", ".join(GROUP_PARAMETERS)
        raise bad_request(f"{min(unknown)!r} is not a parameter of streams; there are {known}")
    commit = parameters.get("commit")
    if commit not in (None, "sent"):
        raise bad_request(f"commit {commit!r} is not sent; without it, acknowledge")
    if commit is not None and acknowledges:
        raise bad_request("a WebSocket stream commits what is acknowledged: leave out commit=")
    reset = parameters.get("auto_offset_reset", EARLIEST)
    if reset not in (EARLIEST, LATEST):
        raise bad_request(f"auto_offset_reset {reset!r} is not earliest or latest")
    session_ms = _number("session_timeout_ms", parameters.get("session_timeout_ms", "10000"))
    if not SESSION_MS_MIN <= session_ms <= SESSION_MS_MAX:
        message = f"session_timeout_ms is from {SESSION_MS_MIN} to {SESSION_MS_MAX}"
        raise bad_request(message)
    on_unreadable = parameters.get("on_decode_error", UnreadablePolicy.QUARANTINE)
    if on_unreadable not in set(UnreadablePolicy):
        known = ", ".join(UnreadablePolicy)
        raise bad_request(f"on_decode_error {on_unreadable!r} is not one of {known}")
    reads = GroupSubscription(
        group,
        topic_names(parameters.get("topics", "")),
        session_ms,
        is_latest=reset == LATEST,
        on_unreadable=UnreadablePolicy(on_unreadable),
    )
    return GroupRequest(reads, commits_sent=commit is not None)


def topic_names(text: str) -> tuple[str, ...]:
    """Topics, separated by commas."""
    names = tuple(sorted({name for name in text.split(",") if name}))
    if not names:
        raise bad_request("name at least one topic")
    if len(names) > TOPICS_MAX:
        raise bad_request(f"a stream has at most {TOPICS_MAX} topics")
    return names


def read_offset(text: str) -> str | Offset:
    """`earliest`, `latest` or a number."""
    return text if text in (EARLIEST, LATEST) else Offset(_number("offset", text))


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > _INT64_DIGITS_MAX:
        expected = "earliest, latest or a number" if name == "offset" else "a number"
        raise bad_request(f"{name} {text!r} is not {expected}")
    return int(text)


def read_positions(request: StreamRequest) -> dict[TopicPartition, Offset]:
    """The positions of the request's id; none without an id."""
    if request.resume_id is None:
        return {}
    try:
        return read_resume_id(request.resume_id, request.topics)
    except Malformed as error:
        message = f"last_event_id: {error.reason}; leave it out to start at an offset"
        raise bad_request(message, "invalid_event_id") from None


def selected_partitions(
    request: StreamRequest, existing: Iterable[TopicPartition]
) -> tuple[TopicPartition, ...]:
    """The partitions that the stream reads."""
    partitions = sorted(existing)
    if request.partitions is None:
        return tuple(partitions)
    missing = [
        TopicPartition(topic, index)
        for topic in request.topics
        for index in request.partitions
        if (topic, index) not in set(partitions)
    ]
    if missing:
        raise not_found("unknown_topic_or_partition", f"{missing[0]} does not exist")
    return tuple(each for each in partitions if each.partition in request.partitions)


def start_offsets(
    request: StreamRequest, ranges: Mapping[TopicPartition, LogRange]
) -> tuple[Offset, ...]:
    """Where the stream starts, by partition in the order of ids.

    An offset by number must be in the log; one of an id need not: a gap is reported in the stream.
    Partitions that are newer than the id are read from their beginning.
    """
    positions = read_positions(request)
    if positions:
        offsets = tuple(
            positions.get(partition, ranges[partition].earliest) for partition in sorted(ranges)
        )
    else:
        offsets = tuple(_start(request, ranges[partition]) for partition in sorted(ranges))
        _check_offset(request, ranges)
    writer = ResumeIdWriter(sorted(ranges), offsets)
    if writer.characters_with_growth > ID_CHARACTERS_MAX:
        raise bad_request(
            f"an id of {len(ranges)} partitions is longer than {ID_CHARACTERS_MAX} characters:"
            " select partitions, or read as a member of a consumer group",
            "too_many_partitions",
        )
    return offsets


def _start(request: StreamRequest, offsets: LogRange) -> Offset:
    if request.timestamp is not None:
        return offsets.latest if offsets.at_timestamp == NO_OFFSET else offsets.at_timestamp
    if request.offset == EARLIEST:
        return offsets.earliest
    if request.offset == LATEST:
        return offsets.latest
    assert isinstance(request.offset, int)
    return request.offset


def _check_offset(request: StreamRequest, ranges: Mapping[TopicPartition, LogRange]) -> None:
    if request.timestamp is not None or not isinstance(request.offset, int):
        return
    if len(ranges) != 1:
        raise bad_request("an offset by number is for one partition: add partition=")
    ((partition, known),) = ranges.items()
    check_in_range(partition, request.offset, known)


def check_in_range(partition: TopicPartition, offset: int, known: LogRange) -> None:
    """GatewayError with the range, if an offset is not in it."""
    if not known.earliest <= offset <= known.latest:
        raise GatewayError(
            416,
            "offset_out_of_range",
            f"offset {offset} is not in {partition}, which has {known.earliest} to {known.latest}",
            details={"earliest": known.earliest, "latest": known.latest},
        )
