"""Where logs begin and end, what was written when, and what groups have committed.

Each asks every broker concerned at once, and again only for what was refused for a moment.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import Ask, Request, Steps, ask_all, plain
from penstock.link.routing import Coordinates, Routes, operation
from penstock.model import LeaderEpoch, Millis, Offset, TopicPartition
from penstock.protocol.api import Api

LATEST: Final = Millis(-1)  # in place of a time: the end, as far as the isolation lets one read
EARLIEST: Final = Millis(-2)
MAX_TIMESTAMP: Final = Millis(-3)  # the record with the newest time of its own
_MAX_TIMESTAMP_FROM: Final = 7
_ANSWER_MS: Final = 30_000
T = TypeVar("T")


class Isolation(IntEnum):
    """Whose records one sees."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Found(NamedTuple):
    """What lies at a time. Offset -1: nothing so late. Timestamp -1: not asked by time."""

    offset: Offset
    timestamp: Millis
    leader_epoch: LeaderEpoch


class Committed(NamedTuple):
    """What a group has committed for a partition."""

    offset: Offset
    metadata: str


@operation
def list_offsets(
    routes: Routes,
    times: Mapping[TopicPartition, Millis],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Steps[dict[TopicPartition, Found]]:
    """The first offset at or after a time, for each partition: by the clock, or by name."""
    found: dict[TopicPartition, Found] = {}

    def attempt() -> Steps[None]:
        missing = [place for place in times if place not in found]
        by_broker = yield from routes.leaders(missing)
        asks = [
            Ask(address, _offsets_request({place: times[place] for place in places}, isolation))
            for address, places in by_broker.items()
        ]
        failure: Exception | None = None
        for outcome in (yield from ask_all(asks)):
            if isinstance(outcome, Exception):
                failure = outcome
                continue
            failure = _take_offsets(outcome, found) or failure
        if failure is not None:
            raise failure

    def doubt() -> None:
        routes.doubt_topics({place.topic for place in times if place not in found})

    yield from routes.patiently("list offsets", attempt, doubt, progress=lambda: len(found))
    return found


@operation
def end_offsets(
    routes: Routes,
    partitions: Iterable[TopicPartition],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Steps[dict[TopicPartition, Offset]]:
    """Where each partition ends: at the high watermark, or at the last stable offset."""
    asked = list_offsets(dict.fromkeys(partitions, LATEST), isolation=isolation)
    found = yield from asked(routes)
    return {place: row.offset for place, row in found.items()}


@operation
def start_offsets(
    routes: Routes, partitions: Iterable[TopicPartition]
) -> Steps[dict[TopicPartition, Offset]]:
    """Where each partition begins."""
    found = yield from list_offsets(dict.fromkeys(partitions, EARLIEST))(routes)
    return {place: row.offset for place, row in found.items()}


@operation
def partitions_of(routes: Routes, topics: Iterable[str]) -> Steps[list[TopicPartition]]:
    """Every partition of these topics, as the cluster says now."""
    names = list(dict.fromkeys(topics))
    yield from routes.patiently(
        f"describe {', '.join(names)}", lambda: routes.describe(names), lambda: None
    )
    return [
        TopicPartition(name, index)
        for name in names
        for index in sorted(routes.topics[name].partitions)
    ]


def _offsets_request(times: Mapping[TopicPartition, Millis], isolation: Isolation) -> Request:
    topics: dict[str, list[dict[str, int]]] = {}
    for (name, index), time in times.items():
        topics.setdefault(name, []).append({"partition_index": index, "timestamp": time})
    by_newest = MAX_TIMESTAMP in times.values()
    return plain(
        Api.LIST_OFFSETS,
        least=_MAX_TIMESTAMP_FROM if by_newest else 2,
        replica_id=-1,
        isolation_level=int(isolation),
        timeout=_ANSWER_MS,
        topics=[{"name": name, "partitions": rows} for name, rows in topics.items()],
    )


def _take_offsets(answer: Any, found: dict[TopicPartition, Found]) -> Refused | None:
    """Keep what was found; the worst of what was refused."""
    worst: Refused | None = None
    for topic in answer.topics:
        for row in topic.partitions:
            place = TopicPartition(topic.name, row.partition_index)
            code = ErrorCode(row.error_code)
            if code is ErrorCode.none:
                epoch = LeaderEpoch(getattr(row, "leader_epoch", -1))
                found[place] = Found(Offset(row.offset), Millis(row.timestamp), epoch)
            elif worst is None or worst.code.retriable:
                worst = Refused(code, f"list offsets of {place}: {code.name}")
    return worst


@operation
def committed_offsets(
    routes: Routes,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = True,
) -> Steps[dict[TopicPartition, Committed]]:
    """What a group has committed, for these partitions or for all; absent: nothing.

    Stable: an offset whose transaction is still open is waited for.
    """
    topics = None if partitions is None else _by_topic(partitions)
    wanted = (
        None
        if topics is None
        else [{"name": name, "partition_indexes": rows} for name, rows in topics.items()]
    )
    request = plain(
        Api.OFFSET_FETCH,
        least=8,
        last=9,  # later ones name topics by id
        groups=[{"group_id": group, "topics": wanted}],
        require_stable=require_stable,
    )

    def attempt() -> Steps[dict[TopicPartition, Committed]]:
        answer = yield from routes.ask_coordinator(Coordinates.GROUP, group, request)
        (row,) = answer.groups
        _accept(row, f"offsets of group {group}")
        return _committed(row, group)

    return (yield from _with_coordinator(routes, group, f"offsets of group {group}", attempt))


@operation
def commit_offsets(
    routes: Routes, group: str, offsets: Mapping[TopicPartition, Offset], *, metadata: str = ""
) -> Steps[None]:
    """Commit for a group that has no members: how a job shows where it is."""
    request = plain(
        Api.OFFSET_COMMIT, last=9, least=2, group_id=group, topics=offset_rows(offsets, metadata)
    )

    def attempt() -> Steps[None]:
        answer = yield from routes.ask_coordinator(Coordinates.GROUP, group, request)
        accept_rows(answer, f"commit offsets of group {group}")

    yield from _with_coordinator(routes, group, f"commit offsets of group {group}", attempt)


def _with_coordinator(
    routes: Routes, group: str, what: str, attempt: Callable[[], Steps[T]]
) -> Steps[T]:
    return (
        yield from routes.patiently(
            what, attempt, lambda: routes.doubt_coordinator(Coordinates.GROUP, group)
        )
    )


def offset_rows(offsets: Mapping[TopicPartition, Offset], metadata: str) -> list[dict[str, object]]:
    """Offsets as commit requests want them."""
    rows: dict[str, list[dict[str, object]]] = {}
    for (name, index), offset in offsets.items():
        rows.setdefault(name, []).append(
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_metadata": metadata,
            }
        )
    return [{"name": name, "partitions": partitions} for name, partitions in rows.items()]


def accept_rows(answer: Any, what: str) -> None:
    """Raises the first refusal among an answer's partitions."""
    for topic in answer.topics:
        for row in topic.partitions:
            _accept(row, f"{what} ({topic.name}-{row.partition_index})")


def _accept(row: Any, what: str) -> None:
    code = ErrorCode(row.error_code)
    if code is not ErrorCode.none:
        raise Refused(code, f"{what}: {code.name}")


def _committed(group_row: Any, group: str) -> dict[TopicPartition, Committed]:
    committed = {}
    for topic in group_row.topics:
        for row in topic.partitions:
            place = TopicPartition(topic.name, row.partition_index)
            _accept(row, f"offset of group {group} for {place}")
            if row.committed_offset >= 0:
                committed[place] = Committed(Offset(row.committed_offset), row.metadata or "")
    return committed


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics
